"""The message that channels send, and the error that they raise if it could not be sent."""

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Message:
    """One message about one incident, in a form that every channel can send.

    `key` is the same for all messages about one occurrence of an incident: PagerDuty uses
    it as its deduplication key, so that "resolved" closes the alert that "opened" created.
    """

    key: str
    step: str  # domain.alerts.kinds.Step
    severity: str  # domain.alerts.kinds.Severity
    kind: str  # domain.alerts.kinds.IncidentKind
    title: str  # one line, without secrets
    text: str  # what happened and what to do, plain text, without secrets
    url: str  # of the incident's page; "" if unknown
    at: datetime  # timezone-aware, UTC
    labels: dict[str, str] = field(default_factory=dict)
    facts: tuple[tuple[str, str], ...] = ()  # name and value, in display order
    repeat: bool = False  # it may have been delivered before


class SendFailed(Exception):
    """A message was not delivered; `lasting` means that trying again cannot help.

    The text is shown on pages and stored, so it does not contain URLs or secrets.
    """

    def __init__(self, sentence: str, *, lasting: bool = False) -> None:
        super().__init__(sentence)
        self.lasting = lasting
