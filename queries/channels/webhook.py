"""Post to a signed webhook: a versioned JSON body, with a signature over time and body.

`docs/alerts.md` describes the format and how a receiver verifies it.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

from queries.channels.base import AtUrl, DeclaredKind, Message, post
from queries.domain.alerts.forms import ChannelSettings, Setting

VERSION = 1
TIMESTAMP, SIGNATURE = "Headgate-Timestamp", "Headgate-Signature"


def send(settings: Mapping[str, Any], message: Message, *, timeout_s: float) -> None:
    """Post the message to `url`, signed with `secret`."""
    body = body_of(message)
    at = str(int(message.at.timestamp()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Headgate",
        TIMESTAMP: at,
        SIGNATURE: signature(str(settings["secret"]), at, body),
    }
    post(str(settings["url"]), body, headers, timeout_s=timeout_s)


def body_of(message: Message) -> bytes:
    """Return the body: JSON that follows the schema in `docs/alerts.md`."""
    form = {
        "version": VERSION,
        "key": message.key,
        "step": message.step,
        "severity": message.severity,
        "kind": message.kind,
        "title": message.title,
        "text": message.text,
        "url": message.url,
        "at": message.at.isoformat(),
        "labels": message.labels,
        "facts": [{"name": name, "value": value} for name, value in message.facts],
        "repeat": message.repeat,
    }
    return json.dumps(form, ensure_ascii=False).encode()


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return "v1=" and the hexadecimal HMAC-SHA256 of timestamp, a dot, and the body."""
    digest = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"v1={digest.hexdigest()}"


KIND = DeclaredKind(
    ChannelSettings(
        (Setting("url", "Address", secret=True), Setting("secret", "Signing secret", secret=True))
    ),
    AtUrl(),
    send,
)
