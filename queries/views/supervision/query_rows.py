"""A query as a row of a list: the line with everything derived that it shows."""

from dataclasses import dataclass
from typing import Any

from queries.domain.definitions.spec import ENDING_TRIGGERS
from queries.domain.reasons import NOTHING, Because, phrase
from queries.domain.states import (
    FAILED_PHASES,
    HANGING_REASONS,
    QUIET_VERDICTS,
    STOPPED_PHASES,
    TROUBLED_PHASES,
    TROUBLED_VERDICTS,
    Desired,
    Phase,
    Reason,
)
from queries.selectors.console.badges import outcomes
from queries.selectors.query_lines import ForeignBatches, QueryLine
from queries.views.supervision.batch_bars import Bar, draw


@dataclass(frozen=True, slots=True)
class Row:
    """What a row, or the head of a query's page, shows."""

    line: QueryLine
    bars: list[Bar]
    can: str  # the verbs that make sense now: "start", "stop restart"…
    reason: str  # why the phase or the health is what it is
    about: str  # what `reason` is about: source, risk, gaps, health or phase
    trigger: str
    load: float | None  # batch duration as a share of the trigger's interval
    fresh: bool  # the numbers of the last batch still hold

    @property
    def troubled(self) -> bool:
        """Tell whether somebody should look at this query."""
        return self.line.troubled

    @property
    def said(self) -> Because:
        """What `reason` says beside the phase; nothing where it is about something else."""
        return self.line.query.phase_detail if self.about in ("phase", "source") else NOTHING

    @property
    def foreign(self) -> str:
        """Return what is said of somebody else's batches in its checkpoint; "" for none."""
        found = self.line.foreign_batches
        return foreign_words(found) if found else ""

    @property
    def load_width(self) -> int:
        """Return the width of the load meter in its 48 units."""
        return min(48, round(48 * (self.load or 0)))


def rows_of(lines: list[QueryLine]) -> list[Row]:
    """Return the rows of lines, in their order, with one read for all of them."""
    ended = outcomes(bar.run for line in lines for bar in line.bars)
    return [row_of(line, ended) for line in lines]


def row_of(line: QueryLine, ended: dict[int, str]) -> Row:
    """Return the row of one line."""
    load = None
    if line.progress and line.interval_ms:
        load = line.progress.batch_duration_ms / line.interval_ms
    about, text = reason(line)
    return Row(
        line=line,
        bars=draw(line.bars, interval_ms=line.interval_ms, outcomes=ended),
        can=" ".join(verbs(line)),
        reason=text,
        about=about,
        trigger=trigger_words(line.trigger),
        load=load,
        fresh=line.phase is Phase.RUNNING and line.progress is not None and not is_idle(line),
    )


def is_idle(line: QueryLine) -> bool:
    """Tell whether the query runs and reads nothing now: its last rates are history then."""
    return line.health is not None and line.health.verdict in QUIET_VERDICTS


def _ill(line: QueryLine) -> bool:
    return line.health is not None and line.health.verdict in TROUBLED_VERDICTS


def is_cut_off(line: QueryLine) -> bool:
    """Tell whether a query that is wanted cannot reach its source."""
    wanted = line.query.desired == Desired.RUNNING
    return wanted and line.query.source_unreachable_since is not None


def verbs(line: QueryLine) -> list[str]:
    """Return the verbs that would change something now."""
    return verbs_of(
        line.query.desired, line.phase, hangs=line.query.phase_reason in HANGING_REASONS
    )


def verbs_of(desired: str, phase: str, *, hangs: bool = False) -> list[str]:
    """Return the verbs that would change what is wanted so, and is in this phase.

    What `hangs` has a thread that does not end: only the end of its driver frees it.
    """
    ends = ["end-driver"] if hangs else []
    if desired != Desired.RUNNING:
        return ["start"] if phase in STOPPED_PHASES else ["start", "stop-now", *ends]
    if ends:
        return ["stop", *ends]
    return ["start", "stop"] if phase in FAILED_PHASES else ["stop", "restart"]


def reason(line: QueryLine) -> tuple[str, str]:
    """Return a topic and one sentence: the evidence of health, else the reason of the phase."""
    missing = line.dropped.missing_batches - line.dropped.repaired
    troubled = line.phase in TROUBLED_PHASES or _ill(line)
    query = line.query
    if is_cut_off(line) and line.phase is Phase.RUNNING and query.source_unreachable_since:
        since = f"{query.source_unreachable_since:%H:%M:%S} UTC"
        return "source", f"Source not reachable since {since}."
    if not troubled and query.risk:
        return "risk", query.risk
    if not troubled and line.foreign_batches:
        return "foreign", foreign_words(line.foreign_batches)
    if not troubled and missing > 0:
        counts = f"{missing:,} of {line.dropped.missing_batches:,}"
        return "gaps", f"{counts} missing batches are not repaired."
    if line.health:
        return "health", line.health.reason
    about = "source" if query.phase_reason == Reason.WAITS_SOURCE else "phase"
    text = phrase(query.phase_reason)
    return about, query.phase_detail.text or text[:1].upper() + text[1:]


def foreign_words(found: ForeignBatches) -> str:
    """Return what batches of somebody else mean, and what to do."""
    which = f"{found.first} to {found.last}" if found.last > found.first else f"{found.last}"
    return (
        f"Its checkpoint holds batches that no run of this installation made ({which}, the last "
        f"begun at {found.at:%Y-%m-%d %H:%M:%S} UTC): another process writes to it. End that "
        "process: the two fail on each other's batches, and rows may reach the sink twice."
    )


def trigger_words(trigger: dict[str, Any]) -> str:
    """Return a trigger as people say it: "every 5 seconds", "as fast as possible", "once"."""
    kind = trigger.get("kind")
    interval = str(trigger.get("interval", ""))
    if kind == "processing_time":
        return "as fast as possible" if interval.startswith("0 ") else f"every {interval}"
    if kind == "continuous":
        return f"continuous, checkpoint every {interval}"
    if kind == "real_time":
        return f"real-time, batches of {interval}"
    return "available now" if kind in ENDING_TRIGGERS and kind != "once" else "once"
