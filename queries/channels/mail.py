"""Send mail by SMTP, always over TLS: from the first byte, or after STARTTLS."""

import re
import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Any

from headgate_ground.masking import is_reference
from headgate_ground.tolerant import whole
from queries.channels.base import DeclaredKind, Message, PermittedHosts, SendFailed, bracketed
from queries.domain.alerts.forms import ChannelSettings, Setting
from queries.domain.errors import Problem
from queries.domain.secrets import ANYWHERE

STARTTLS, TLS = "starttls", "tls"
_ADDRESS = re.compile(r"[^\s@<>,;\"]+@[^\s@<>,;\"]+")


def send(settings: Mapping[str, Any], message: Message, *, timeout_s: float) -> None:
    """Send the message from `sender` to `recipients` through `host` and `port`.

    All messages about one occurrence of an incident form one thread.
    """
    mail = mail_of(settings, message)
    context = ssl.create_default_context()
    host, security = str(settings["host"]), str(settings.get("security") or STARTTLS)
    port = int(settings.get("port") or (465 if security == TLS else 587))
    server: smtplib.SMTP
    try:
        if security == TLS:
            server = smtplib.SMTP_SSL(host, port, timeout=timeout_s, context=context)
        else:
            server = smtplib.SMTP(host, port, timeout=timeout_s)
        with server:
            if security != TLS:
                server.starttls(context=context)
            if settings.get("username"):
                server.login(str(settings["username"]), str(settings.get("password") or ""))
            server.send_message(mail)
    except ssl.SSLError:
        raise SendFailed("The mail server's certificate is not valid.") from None
    except smtplib.SMTPNotSupportedError:
        raise SendFailed(
            "The mail server does not support STARTTLS or login.", lasting=True
        ) from None
    except smtplib.SMTPAuthenticationError as error:
        raise SendFailed(f"The login was rejected ({error.smtp_code}).", lasting=True) from None
    except smtplib.SMTPRecipientsRefused:
        raise SendFailed("The mail server rejected all recipients.", lasting=True) from None
    except smtplib.SMTPResponseException as error:
        lasting = 500 <= error.smtp_code < 600
        raise SendFailed(
            f"The mail server responded with {error.smtp_code}.", lasting=lasting
        ) from None
    except (smtplib.SMTPException, OSError) as error:
        raise SendFailed(f"The mail server did not respond ({type(error).__name__}).") from None


def mail_of(settings: Mapping[str, Any], message: Message) -> EmailMessage:
    """Return the email: its subject contains the step, its body contains facts and a link."""
    mail = EmailMessage()
    sender = str(settings["sender"])
    mark = {"resolved": "Resolved: ", "reminder": "Reminder: ", "escalated": "Escalated: "}
    again = " (sent once more)" if message.repeat else ""
    title = " ".join(message.title.split())  # a line break would end the header
    mail["Subject"] = f"[{message.severity}] {mark.get(message.step, '')}{title}{again}"
    mail["From"] = sender
    mail["To"] = ", ".join(settings["recipients"])
    mail["Date"] = format_datetime(message.at)
    domain = sender.rpartition("@")[2].strip("> ") or "headgate"
    mail["Message-ID"] = make_msgid(domain=domain)
    thread = f"<{message.key.replace('/', '.')}@{domain}>"
    mail["References"] = thread
    mail["In-Reply-To"] = thread
    lines = [message.text, "", *(f"{name}: {value}" for name, value in message.facts)]
    if message.url:
        lines += ["", message.url]
    mail.set_content("\n".join(lines).strip() + "\n")
    return mail


def problems_of(settings: Mapping[str, Any]) -> list[Problem]:
    """Return the problems with the sender, the recipients, the security and the port."""
    problems = []
    recipients = settings.get("recipients", [])
    if not isinstance(recipients, list):
        way_out = "Write a list of addresses."
        problems.append(Problem("settings.recipients", str(recipients), "is not a list.", way_out))
        recipients = []
    for field, address in (
        ("settings.sender", settings.get("sender", "")),
        *(("settings.recipients", recipient) for recipient in recipients),
    ):
        if address and not _ADDRESS.fullmatch(str(address)):
            way_out = "Write it as name@example.org."
            problems.append(
                Problem(field, str(address)[:200], "is not a valid email address.", way_out)
            )
    if settings.get("security", STARTTLS) not in (STARTTLS, TLS):
        way_out = "Choose starttls or tls."
        security = str(settings["security"])[:200]
        problems.append(Problem("settings.security", security, "is not known.", way_out))
    port = settings.get("port", 587)
    if not 0 < (whole(str(port)) or 0) < 65536:
        way_out = "Choose a number from 1 to 65535."
        problems.append(Problem("settings.port", str(port)[:200], "is not a valid port.", way_out))
    return problems


class _MailServer:
    """The server in the `host` setting, which can be in a private network."""

    def destination(self, settings: Mapping[str, Any]) -> str:
        host = str(settings.get("host", "")).strip().lower()
        if not host or is_reference(host):
            return ANYWHERE
        port = settings.get("port") or (465 if settings.get("security") == TLS else 587)
        return f"{bracketed(host)}:{port}"

    def way(self, settings: Mapping[str, Any]) -> PermittedHosts:
        return PermittedHosts((str(settings.get("host", "")).strip(),), relay=True)


KIND = DeclaredKind(
    ChannelSettings(
        (
            Setting("host", "Mail server"),
            Setting("sender", "From"),
            Setting("recipients", "To, one address per line", lines=True),
            Setting("port", "Port", needed=False),
            Setting("security", "TLS: starttls or tls", needed=False),
            Setting("username", "User name", needed=False),
            Setting("password", "Password", needed=False, secret=True),
        ),
        problems_of,
    ),
    _MailServer(),
    send,
)
