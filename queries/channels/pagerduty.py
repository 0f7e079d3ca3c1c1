"""Use PagerDuty's Events API v2: one alert per occurrence of an incident.

The format is specified by PagerDuty: developer.pagerduty.com, "Send an Alert Event".
"""

import json
from collections.abc import Mapping
from typing import Any

from queries.channels.base import AtUrl, DeclaredKind, Message, post
from queries.domain.alerts.forms import ChannelSettings, Setting

URL = "https://events.pagerduty.com/v2/enqueue"
#: Maximum lengths of the alert's texts.
_SUMMARY, _KEY = 1024, 255


def send(settings: Mapping[str, Any], message: Message, *, timeout_s: float) -> None:
    """Trigger or resolve the alert that has the message's key, using `routing_key`."""
    event: dict[str, Any] = {
        "routing_key": str(settings["routing_key"]),
        "event_action": "resolve" if message.step == "resolved" else "trigger",
        "dedup_key": message.key[-_KEY:],
    }
    if event["event_action"] == "trigger":
        event |= {
            "payload": {
                "summary": message.title[:_SUMMARY],
                "source": "Headgate",
                "severity": message.severity,
                "timestamp": message.at.isoformat(),
                "class": message.kind,
                "custom_details": {
                    "text": message.text,
                    **dict(message.facts),
                    **message.labels,
                },
            },
            "links": [{"href": message.url, "text": "Headgate"}] if message.url else [],
        }
    post(
        str(settings.get("url") or URL),
        json.dumps(event).encode(),
        {"Content-Type": "application/json"},
        timeout_s=timeout_s,
    )


KIND = DeclaredKind(
    ChannelSettings(
        (
            Setting("routing_key", "Routing key", secret=True),
            Setting("url", "Address", needed=False),
        )
    ),
    AtUrl(URL),
    send,
)
