"""What every channel sends, and how it says that it could not."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class ChannelKind(StrEnum):
    """The kinds of channels."""

    MAIL = "mail"
    CHAT = "chat"
    PAGERDUTY = "pagerduty"
    OPSGENIE = "opsgenie"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True)
class Message:
    """One message about one incident, as every channel can carry it.

    `key` is the same for all messages of one occurrence of an incident: PagerDuty and Opsgenie
    take it as their deduplication key, so that "resolved" closes what "opened" opened.
    """

    key: str
    step: str  # domain.alerts.kinds.Step
    severity: str  # domain.alerts.kinds.Severity
    kind: str  # domain.alerts.kinds.IncidentKind
    title: str  # one line, without secrets
    text: str  # what happened and what to do, plain text, without secrets
    url: str  # of the incident's page; "" where none is known
    at: datetime  # aware, UTC
    labels: dict[str, str] = field(default_factory=dict)
    facts: tuple[tuple[str, str], ...] = ()  # name and value, in the order to show
    repeat: bool = False  # it may have been delivered before


class SendFailed(Exception):
    """A message was not delivered; `lasting` where trying again cannot help.

    The text is shown on pages and stored: it holds no address and no secret.
    """

    def __init__(self, sentence: str, *, lasting: bool = False) -> None:
        super().__init__(sentence)
        self.lasting = lasting
