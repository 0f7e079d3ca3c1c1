"""Send to chat services through apprise: only those listed here, none of which runs a program."""

import logging
from collections.abc import Mapping
from typing import Any

from queries.channels.base import AtUrl, DeclaredKind, Message, SendFailed, scheme_of
from queries.domain.alerts.forms import ChannelSettings, Setting

#: Services with fixed hosts, whatever their address says: apprise's constants.
FIXED = {
    "slack": ("slack.com", "hooks.slack.com", "hooks.slack-gov.com"),
    "tgram": ("api.telegram.org",),
    "discord": ("discord.com",),
    "gchat": ("chat.googleapis.com",),
    "wxteams": ("webexapis.com", "api.ciscospark.com"),
}
#: Services whose address contains their host; only over TLS.
NAMED = frozenset({"workflows", "zulip", "mmosts", "rockets", "matrixs", "ntfys"})
#: The same without TLS: only in networks that the installation allows.
PLAIN = frozenset({"mmost", "rocket", "matrix", "ntfy"})
SCHEMES = FIXED.keys() | NAMED | PLAIN

#: apprise's names of the severities; the others are "info".
_TYPES = {"critical": "failure", "warning": "warning"}

# It logs addresses, which are secrets.
logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)


def send(settings: Mapping[str, Any], message: Message, *, timeout_s: float) -> None:
    """Send the message to the apprise URL `url`."""
    import apprise  # every process knows this kind, and few ever send through it

    url = str(settings["url"])
    if scheme_of(url) not in SCHEMES:
        schemes = ", ".join(sorted(SCHEMES))
        raise SendFailed(f"Its URL must start with one of: {schemes}.", lasting=True)
    limit = max(1, int(timeout_s / 2))
    joined = "&" if "?" in url else "?"
    sender = apprise.Apprise.instantiate(f"{url}{joined}cto={limit}&rto={limit}")
    if not isinstance(sender, apprise.NotifyBase):
        raise SendFailed("Its URL is not supported by apprise.", lasting=True)
    if not sender.verify_certificate:
        raise SendFailed("Its URL contains verify=no. Remove it.", lasting=True)
    sender.redirects = False  # a redirect could lead from https to http
    title = f"{message.title} (sent once more)" if message.repeat else message.title
    if message.step != "opened":
        title = f"{message.step.capitalize()}: {title}"
    resolved = message.step == "resolved"
    kind = "success" if resolved else _TYPES.get(message.severity, "info")
    facts = (f"{name}: {value}" for name, value in message.facts)
    text = "\n".join(filter(None, [message.text, *facts, message.url]))
    if not sender.notify(body=text or title, title=title, notify_type=apprise.NotifyType(kind)):
        raise SendFailed("The chat service did not accept it.")


KIND = DeclaredKind(
    ChannelSettings((Setting("url", "Address", secret=True),)),
    AtUrl(fixed=FIXED, plain=PLAIN),
    send,
)
