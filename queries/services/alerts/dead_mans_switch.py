"""Tell an outside watcher again and again that all works: when we are gone, it misses us.

A task on beat's schedule calls this: without beat, worker, Redis or database it does not run, and
it calls nothing while any other part has a problem.
"""

import logging
import urllib.request
from datetime import datetime
from http.client import HTTPException, HTTPResponse
from typing import Any

from django.conf import settings

from controlplane.health.system import READY_PARTS, system_health
from queries.secret_references import ReferenceMissing, References
from queries.services.alerts.watcher import web_answers

logger = logging.getLogger(__name__)

#: For the outside watcher's answer. Seconds.
LIMIT_S = 10.0
#: Parts that must work for a call.
NEEDED = (*READY_PARTS, "disk", "data")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **options: Any) -> None:
        """Follow nothing: the address is the one that an admin wrote."""


def call_outside(*, now: datetime) -> str:
    """Call the address of `HEADGATE_DEAD_MANS_SWITCH_URL`; return why not, "" where it was called.

    The address may be a secret: no text holds it.
    """
    if not settings.DEAD_MANS_SWITCH_URL:
        return "HEADGATE_DEAD_MANS_SWITCH_URL is not set"
    ill = [part.name for part in system_health(now).parts if part.name in NEEDED and not part.ok]
    if not web_answers():
        ill.append("web")
    if ill:
        logger.warning("the outside watcher is not called: %s", ", ".join(ill))
        return f"not all of Headgate works: {', '.join(ill)}"
    why = _call()
    if why:
        logger.warning("the outside watcher could not be called: %s", why)
    return why


def _call() -> str:
    references = References(
        env_allowlist=tuple(settings.SECRET_ENV_ALLOWLIST), secrets_dir=str(settings.SECRETS_DIR)
    )
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        url = references.resolve(settings.DEAD_MANS_SWITCH_URL).strip()
        if not url.startswith(("https://", "http://")):
            return "HEADGATE_DEAD_MANS_SWITCH_URL is no http address"
        answer: HTTPResponse
        with opener.open(url, timeout=LIMIT_S) as answer:
            answer.read(1024)
    except ReferenceMissing as error:
        return f"HEADGATE_DEAD_MANS_SWITCH_URL: {error}"
    except (OSError, HTTPException, ValueError) as error:
        return references.mask(f"{type(error).__name__}: {error}")
    return ""
