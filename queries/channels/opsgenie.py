"""Opsgenie's Alert API: one alert for each occurrence of an incident, by its alias.

The form is Opsgenie's: docs.opsgenie.com, "Alert API".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from queries.channels.base import Message
from queries.channels.http import Network, post

URL = "https://api.opsgenie.com"
#: Longest texts that it takes.
_MESSAGE, _ALIAS, _DESCRIPTION = 130, 512, 15_000
_PRIORITIES = {"critical": "P1", "warning": "P3"}


def send(
    settings: Mapping[str, Any],
    message: Message,
    *,
    timeout_s: float,
    allowed: Sequence[Network] = (),
) -> None:
    """Create, or close, the alert of the message's key with `api_key`."""
    base = str(settings.get("url") or URL).rstrip("/")
    alias = message.key[-_ALIAS:]
    body: dict[str, Any]
    if message.step == "resolved":
        path = f"/v2/alerts/{quote(alias, safe='')}/close?identifierType=alias"
        body = {"source": "Headgate", "note": message.title}
    else:
        path = "/v2/alerts"
        body = {
            "message": message.title[:_MESSAGE],
            "alias": alias,
            "description": f"{message.text}\n\n{message.url}".strip()[:_DESCRIPTION],
            "details": {**dict(message.facts), **message.labels},
            "priority": _PRIORITIES.get(message.severity, "P3"),
            "source": "Headgate",
        }
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"GenieKey {settings['api_key']}",
    }
    post(f"{base}{path}", json.dumps(body).encode(), headers, timeout_s=timeout_s, allowed=allowed)
