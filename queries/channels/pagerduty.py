"""PagerDuty's Events API v2: one alert for each occurrence of an incident.

The form is PagerDuty's: developer.pagerduty.com, "Send an Alert Event".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from queries.channels.base import Message
from queries.channels.http import Network, post

URL = "https://events.pagerduty.com/v2/enqueue"
#: Longest texts that it takes.
_SUMMARY, _KEY = 1024, 255


def send(
    settings: Mapping[str, Any],
    message: Message,
    *,
    timeout_s: float,
    allowed: Sequence[Network] = (),
) -> None:
    """Trigger, or resolve, the alert of the message's key with `routing_key`."""
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
        allowed=allowed,
    )
