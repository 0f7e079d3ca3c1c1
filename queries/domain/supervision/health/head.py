"""Compose the sentence at the head of a query, for the pages, REST and the CLI.

Facts come from several observers at different times, and each is true for its own time. They are
combined here, so that statements shown together never contradict each other:

- if the query has read from its source since Headgate lost contact with the source, the lost
  contact does not matter;
- a next attempt is mentioned only while the query is waiting for it, and a crash loop only while it
  lasts;
- an earlier attempt's report is dropped once an operator has requested another attempt.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from queries.domain.failures.crashes import CrashLoop
from queries.domain.kafka.lag import LAG_FRESH
from queries.domain.readings import Dated, counted
from queries.domain.reasons import NOTHING, Because, phrase
from queries.domain.states import (
    FAILED_PHASES,
    TROUBLED_PHASES,
    TROUBLED_VERDICTS,
    Desired,
    Phase,
    Reason,
)
from queries.domain.supervision.health.verdicts import Health

#: Phases in which a query waits for its next attempt.
_WAITS = frozenset({Phase.BACKOFF, Phase.ON_HOLD})


class HeadTopic(StrEnum):
    """The topic of a head's sentence."""

    SOURCE = "source"
    RISK = "risk"
    FOREIGN = "foreign"
    GAPS = "gaps"
    HEALTH = "health"
    PHASE = "phase"


@dataclass(frozen=True, slots=True)
class HeadFacts:
    """Everything from which a query's head is composed."""

    now: datetime
    desired: Desired
    phase: Phase
    reason: Reason
    detail: Because = NOTHING
    health: Health | None = None
    failures: int = 0  # in a row, for the query and its driver; a new start clears them
    next_attempt_at: datetime | None = None
    crash_loop: CrashLoop | None = None
    unreachable_since: datetime | None = None  # Headgate cannot reach its source
    source_asked_at: datetime | None = None  # when the sources gave no answer last; None: they did
    risk: str = ""
    foreign: str = ""  # about batches made by another process
    missing: int = 0  # batches whose events did not arrive
    unrepaired: int = 0


@dataclass(frozen=True, slots=True)
class Head:
    """One sentence about a query, and the details shown next to it."""

    about: HeadTopic
    sentence: str
    said: Because = NOTHING  # the sentence as a code; empty if it is not about the phase
    health: Health | None = None
    next_attempt_at: datetime | None = None  # in the future
    crash_loop: CrashLoop | None = None
    retries: bool = False  # for a crash loop: another attempt is coming
    source_silent_since: datetime | None = None  # next to the sentence: Headgate's own view
    source_read: bool = False  # the query has read from that source since
    risk: str = ""  # next to the sentence
    foreign: str = ""  # next to the sentence


def compose(facts: HeadFacts) -> Head:
    """Return the head of a query now."""
    about, sentence = _sentence(facts)
    loop = facts.crash_loop if facts.failures else None
    at = facts.next_attempt_at if facts.phase in _WAITS else None
    return Head(
        about=about,
        sentence=sentence,
        said=facts.detail if about in (HeadTopic.PHASE, HeadTopic.SOURCE) else NOTHING,
        health=facts.health,
        next_attempt_at=at if at is not None and at > facts.now else None,
        crash_loop=loop,
        retries=facts.phase in FAILED_PHASES | {Phase.PENDING, Phase.STARTING},
        source_silent_since=None if about is HeadTopic.SOURCE else facts.unreachable_since,
        source_read=facts.health is not None and facts.health.source_answered,
        risk="" if about is HeadTopic.RISK else facts.risk,
        foreign="" if about is HeadTopic.FOREIGN else facts.foreign,
    )


def _sentence(facts: HeadFacts) -> tuple[HeadTopic, str]:
    """Return the most important topic and its sentence."""
    health, since = facts.health, facts.unreachable_since
    read = health is not None and health.source_answered
    wanted = facts.desired is Desired.RUNNING and facts.phase is Phase.RUNNING
    if wanted and since is not None and not read:
        silent = Dated(
            f"Source not reachable since {since:%H:%M:%S} UTC.", facts.source_asked_at or facts.now
        )
        return HeadTopic.SOURCE, silent.at(facts.now, fresh_for=LAG_FRESH)
    ill = health is not None and health.verdict in TROUBLED_VERDICTS
    if facts.phase not in TROUBLED_PHASES and not ill:
        if facts.risk:
            return HeadTopic.RISK, facts.risk
        if facts.foreign:
            return HeadTopic.FOREIGN, facts.foreign
        if facts.unrepaired > 0:
            of = counted(facts.missing, "missing batch,missing batches")
            are = "is" if facts.unrepaired == 1 else "are"
            return HeadTopic.GAPS, f"{facts.unrepaired:,} of {of} {are} not repaired."
    if health is not None:
        return HeadTopic.HEALTH, health.reason
    text = phrase(facts.reason)
    about = HeadTopic.SOURCE if facts.reason is Reason.WAITS_SOURCE else HeadTopic.PHASE
    return about, facts.detail.text or text[:1].upper() + text[1:]
