"""A query as a row of a list: the line with what the eye needs worked out."""

from dataclasses import dataclass
from typing import Any

from queries.domain.definitions.spec import ENDING_TRIGGERS
from queries.domain.states import (
    TROUBLED_PHASES,
    TROUBLED_VERDICTS,
    Desired,
    Phase,
    Verdict,
)
from queries.selectors.console.badges import outcomes
from queries.selectors.query_lines import QueryLine
from queries.views.supervision.batch_bars import Bar, draw


@dataclass(frozen=True, slots=True)
class Row:
    """What a row, or the head of a query's page, shows."""

    line: QueryLine
    bars: list[Bar]
    can: str  # the verbs that make sense now: "start", "stop restart"…
    troubled: bool
    reason: str  # why the phase or the health is what it is
    trigger: str
    load: float | None  # batch duration as a share of the trigger's interval
    fresh: bool  # the numbers of the last batch still hold

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
    return Row(
        line=line,
        bars=draw(line.bars, interval_ms=line.interval_ms, outcomes=ended),
        can=" ".join(verbs(line)),
        troubled=is_troubled(line),
        reason=reason(line),
        trigger=trigger_words(line.trigger),
        load=load,
        fresh=line.phase is Phase.RUNNING and line.progress is not None and not is_idle(line),
    )


def attention_first(rows: list[Row]) -> list[Row]:
    """Return those at risk first, then those in trouble, each part by name."""
    return sorted(
        rows, key=lambda row: (not row.line.query.risk, not row.troubled, row.line.query.name)
    )


def is_idle(line: QueryLine) -> bool:
    """Tell whether the query runs and has nothing to read: its last rates are history then."""
    return line.health is not None and line.health.verdict is Verdict.IDLE


def is_troubled(line: QueryLine) -> bool:
    """Tell whether a person should look at this query."""
    if line.phase in TROUBLED_PHASES or line.query.risk or line.crash_loop:
        return True
    if line.dropped.missing_batches > line.dropped.repaired or is_cut_off(line):
        return True
    return line.health is not None and line.health.verdict in TROUBLED_VERDICTS


def is_cut_off(line: QueryLine) -> bool:
    """Tell whether a query that is wanted cannot reach its source."""
    wanted = line.query.desired == Desired.RUNNING
    return wanted and line.query.source_unreachable_since is not None


def verbs(line: QueryLine) -> list[str]:
    """Return the verbs that would change something now."""
    wanted = line.query.desired == Desired.RUNNING
    if not wanted:
        at_rest = line.phase in (Phase.STOPPED, Phase.COMPLETED)
        return ["start"] if at_rest else ["start", "stop-now"]
    waiting = line.phase in (Phase.BACKOFF, Phase.BROKEN, Phase.FAILED)
    return ["start", "stop"] if waiting else ["stop", "restart"]


def reason(line: QueryLine) -> str:
    """Return one sentence: the evidence of health, else why the phase is what it is."""
    missing = line.dropped.missing_batches - line.dropped.repaired
    troubled = line.phase in TROUBLED_PHASES or (
        line.health is not None and line.health.verdict in TROUBLED_VERDICTS
    )
    query = line.query
    if is_cut_off(line) and line.phase is Phase.RUNNING and query.source_unreachable_since:
        return f"Source not reachable since {query.source_unreachable_since:%H:%M:%S} UTC."
    if not troubled and query.risk:
        return query.risk
    if not troubled and missing > 0:
        return f"{missing:,} of {line.dropped.missing_batches:,} missing batches are not repaired."
    if line.health:
        return line.health.reason
    if query.phase_detail:
        return query.phase_detail
    text = query.phase_reason
    return text[:1].upper() + text[1:] if text else ""


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


def counts(rows: list[Row]) -> dict[str, int]:
    """Return how many queries there are of each kind that the list can be narrowed to."""
    phases = [row.line.phase for row in rows]
    return {
        "all": len(rows),
        "attention": sum(row.troubled for row in rows),
        "risk": sum(bool(row.line.query.risk) for row in rows),
        "running": phases.count(Phase.RUNNING),
        "changing": sum(row.line.converging for row in rows),
        "stopped": sum(phase in (Phase.STOPPED, Phase.COMPLETED) for phase in phases),
    }


def in_group(row: Row, group: str) -> bool:
    """Tell whether a row belongs to one of the kinds that `counts` counts."""
    phase = row.line.phase
    return {
        "attention": row.troubled,
        "risk": bool(row.line.query.risk),
        "running": phase is Phase.RUNNING,
        "changing": row.line.converging,
        "stopped": phase in (Phase.STOPPED, Phase.COMPLETED),
    }.get(group, True)
