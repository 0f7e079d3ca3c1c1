"""A query as a list row: its line and all the derived values that it shows."""

from dataclasses import dataclass
from typing import Any

from queries.domain.definitions.spec import TRIGGERS, TriggerKind
from queries.domain.states import QUIET_VERDICTS, Phase, verbs_of
from queries.domain.supervision.health.head import Head
from queries.domain.triggers.kinds import KINDS
from queries.selectors.console.badges import outcomes
from queries.selectors.query_lines import QueryLine
from queries.views.supervision.batch_bars import BarSlot, draw


@dataclass(frozen=True, slots=True)
class QueryRow:
    """The contents of a row, or of the head on a query's page."""

    line: QueryLine
    bars: list[BarSlot]
    can: str  # the verbs that currently make sense: "start", "stop restart"…
    trigger: str
    load: float | None  # batch duration as a share of the trigger's interval
    fresh: bool  # the last batch's numbers are still valid

    @property
    def troubled(self) -> bool:
        """Return whether the query needs attention."""
        return self.line.troubled

    @property
    def head(self) -> Head:
        """Return the query's head."""
        return self.line.head

    @property
    def load_width(self) -> int:
        """Return the width of the load meter in its 48 units."""
        return min(48, round(48 * (self.load or 0)))


def rows_of(lines: list[QueryLine]) -> list[QueryRow]:
    """Return the rows for these lines, in order, with one database read for all."""
    ended = outcomes(bar.run for line in lines for bar in line.bars)
    return [row_of(line, ended) for line in lines]


def row_of(line: QueryLine, ended: dict[int, str]) -> QueryRow:
    """Return the row for one line."""
    load = None
    if line.progress and line.interval_ms and line.progress.batch_duration_ms is not None:
        load = line.progress.batch_duration_ms / line.interval_ms
    return QueryRow(
        line=line,
        bars=draw(line.bars, interval_ms=line.interval_ms, outcomes=ended),
        can=" ".join(verbs_of(line.query.desired, line.phase, line.query.phase_reason)),
        trigger=trigger_words(line.trigger),
        load=load,
        fresh=line.phase is Phase.RUNNING and line.progress is not None and not is_idle(line),
    )


def is_idle(line: QueryLine) -> bool:
    """Return whether the query is running but reading nothing, so its last rates are outdated."""
    return line.health is not None and line.health.verdict in QUIET_VERDICTS


def trigger_words(trigger: dict[str, Any]) -> str:
    """Return a trigger in words: "every 5 seconds", "as fast as possible", "once"."""
    kind = trigger.get("kind")
    interval = str(trigger.get("interval", ""))
    if kind == TriggerKind.PROCESSING_TIME and interval.startswith("0 "):
        return "as fast as possible"
    trigger_kind = KINDS[TriggerKind(str(kind))] if kind in TRIGGERS else KINDS[TriggerKind.ONCE]
    return trigger_kind.words.format(interval=interval)
