"""Use Opsgenie's Alert API: one alert per occurrence of an incident, identified by its alias.

The format is specified by Opsgenie: docs.opsgenie.com, "Alert API".
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from queries.channels.base import Message
from queries.channels.declaration import Kind
from queries.channels.http import post
from queries.channels.places import AtUrl
from queries.domain.alerts.channel_settings import ChannelSettings, Setting

URL = "https://api.opsgenie.com"
#: Maximum lengths of the alert's texts.
_MESSAGE, _ALIAS, _DESCRIPTION = 130, 512, 15_000
_PRIORITIES = {"critical": "P1", "warning": "P3"}


def send(settings: Mapping[str, Any], message: Message, *, timeout_s: float) -> None:
    """Create or close the alert that has the message's key, using `api_key`."""
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
    post(f"{base}{path}", json.dumps(body).encode(), headers, timeout_s=timeout_s)


KIND = Kind(
    ChannelSettings(
        (Setting("api_key", "API key", secret=True), Setting("url", "Address", needed=False))
    ),
    AtUrl(URL),
    send,
)
