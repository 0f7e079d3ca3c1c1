"""Chat through apprise: only the services named here, and none that runs a program."""

import ipaddress
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import apprise

from queries.channels.base import Message, SendFailed
from queries.channels.http import Network

#: Services whose host is fixed by apprise: the address is a key and no place.
FIXED = frozenset(
    {"slack", "msteams", "workflows", "tgram", "discord", "gchat", "wxteams", "zulip"}
)
#: Services that people host themselves; over TLS only.
SELF_HOSTED = frozenset({"mmosts", "rockets", "matrixs", "ntfys"})
#: The same without TLS: to networks that the installation allows, and nowhere else.
PLAIN = frozenset({"mmost", "rocket", "matrix", "ntfy"})
SCHEMES = FIXED | SELF_HOSTED | PLAIN

_TYPES = {"critical": apprise.NotifyType.FAILURE, "warning": apprise.NotifyType.WARNING}

# It writes addresses, which are secrets, into its log.
logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)


def send(
    settings: Mapping[str, Any],
    message: Message,
    *,
    timeout_s: float,
    allowed: Sequence[Network] = (),
) -> None:
    """Send the message to apprise's address `url`."""
    url = str(settings["url"])
    scheme = url.partition("://")[0].lower()
    if scheme not in SCHEMES:
        known = ", ".join(sorted(SCHEMES))
        raise SendFailed(f"Its address begins with none of: {known}.", lasting=True)
    if scheme in PLAIN and not _allowed(url, allowed):
        raise SendFailed(
            f"{scheme}:// is not private. Use {scheme}s://, or name its network in "
            "HEADGATE_ALERT_NETWORKS.",
            lasting=True,
        )
    limit = max(1, int(timeout_s / 2))
    joined = "&" if "?" in url else "?"
    sender = apprise.Apprise.instantiate(f"{url}{joined}cto={limit}&rto={limit}")
    if sender is None:
        raise SendFailed("Its address is not one that apprise understands.", lasting=True)
    title = f"{message.title} (sent once more)" if message.repeat else message.title
    if message.step != "opened":
        title = f"{message.step.capitalize()}: {title}"
    resolved = message.step == "resolved"
    kind = apprise.NotifyType.SUCCESS if resolved else _TYPES.get(message.severity)
    text = "\n".join(filter(None, [message.text, message.url]))
    if not sender.notify(body=text or title, title=title, notify_type=kind or "info"):
        raise SendFailed("The chat service did not take it.")


def _allowed(url: str, allowed: Sequence[Network]) -> bool:
    try:
        address = ipaddress.ip_address(urlsplit(url).hostname or "")
    except ValueError:
        return False
    return any(address in network for network in allowed)
