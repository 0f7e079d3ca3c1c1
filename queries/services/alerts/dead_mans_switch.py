"""Ping an external watcher while all is well, so that it raises an alarm if Headgate is gone.

A tick of the leader sends the ping, so none is sent without a worker, Redis and the database. Nor
is one sent while another part has a problem.
"""

import logging
from datetime import datetime

from django.conf import settings

from queries.channels.base import SendFailed
from queries.channels.door import through
from queries.channels.http import request
from queries.channels.places import AtUrl
from queries.domain.system import READY_PARTS
from queries.secret_references import ReferenceMissing
from queries.services.alerts.sending import allowed_networks
from queries.services.alerts.watcher import web_answers
from queries.services.local_references import local_references
from queries.services.system.health import system_health

logger = logging.getLogger(__name__)

#: Timeout for the external watcher's response, in seconds.
LIMIT_S = 10.0
#: Parts that must work before a ping is sent.
NEEDED = (*READY_PARTS, "ticks", "disk", "data")


def call_outside(*, now: datetime) -> str:
    """Ping `HEADGATE_DEAD_MANS_SWITCH_URL`; return why that was not done, "" if it was.

    The URL may be a secret, so no text contains it.
    """
    if not settings.DEAD_MANS_SWITCH_URL:
        return "HEADGATE_DEAD_MANS_SWITCH_URL is not set"
    ill = [part.name for part in system_health(now).parts if part.name in NEEDED and not part.ok]
    if not web_answers():
        ill.append("web")
    if ill:
        logger.warning("not calling the external watcher: %s", ", ".join(ill))
        return f"not all of Headgate works: {', '.join(ill)}"
    why = _call()
    if why:
        logger.warning("could not call the external watcher: %s", why)
    return why


def _call() -> str:
    references = local_references()
    try:
        url = references.resolve(settings.DEAD_MANS_SWITCH_URL).strip()
        with through(AtUrl(url).way({}), allowed=allowed_networks()):
            request("GET", url, timeout_s=LIMIT_S)
    except ReferenceMissing as error:
        return f"HEADGATE_DEAD_MANS_SWITCH_URL: {error}"
    except SendFailed as error:
        return references.mask(f"HEADGATE_DEAD_MANS_SWITCH_URL: {error}")
    return ""
