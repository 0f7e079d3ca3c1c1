"""Describe what a query without input is waiting for, and a watermark that nothing can pass.

Spark emits the rows of an append aggregation only once the watermark has passed the end of their
window, and the watermark moves only with arriving events. An idle query then looks as if it had
lost its last rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

#: Operators that emit rows when the watermark passes them, in append mode.
_EMITS = frozenset({"stateStoreSave", "sessionWindowStateStoreSave"})


@dataclass(frozen=True, slots=True)
class Delay:
    """The lateness allowed by a query's only watermark."""

    column: str
    by: timedelta


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """State rows that are waiting for the watermark."""

    watermark: datetime  # as of the newest batch
    rows: int  # in state, more than 0
    emits: bool  # they are written once the watermark has passed; False: they are only dropped
    delay: Delay | None = None  # None: unknown, or there are several

    def __str__(self) -> str:
        """Return the sentence."""
        is_single = self.rows == 1
        rows = f"{self.rows:,} state {'row waits' if is_single else 'rows wait'}"
        end = "the end of " + ("its window" if is_single else "their windows")
        if not self.emits:
            rows = f"{self.rows:,} state {'row is' if is_single else 'rows are'} kept"
            end = "it" if is_single else "them"
        moves = "events later than those it has seen"
        if self.delay is not None:
            later = self.watermark + self.delay.by
            moves = f"a row whose {self.delay.column} is later than {_at(later)}"
        until = "for it to pass" if self.emits else "until it passes"
        at = _at(self.watermark)
        return f"Its watermark is at {at}; {rows} {until} {end}. It is waiting for {moves}."


def waiting(
    progress: Mapping[str, Any] | None, *, appends: bool, delay: Delay | None
) -> WaitingRows | None:
    """Return the rows that the newest batch left waiting in the state; None if there are none.

    `appends`: the output mode is append. Without a watermark nothing waits, and a progress event
    that does not have Spark's form is ignored.
    """
    watermark = _time((progress or {}).get("eventTime"))
    operators = (progress or {}).get("stateOperators")
    if watermark is None or not isinstance(operators, list):
        return None
    row_counts = [
        (operator.get("operatorName"), operator.get("numRowsTotal"))
        for operator in operators
        if operator
    ]
    emitted = _sum(rows for name, rows in row_counts if appends and name in _EMITS)
    rows = emitted or _sum(rows for _, rows in row_counts)
    return WaitingRows(watermark, rows, bool(emitted), delay) if rows else None


def _sum(counts: Any) -> int:
    return sum(count for count in counts if isinstance(count, int) and count > 0)


def _time(event_time: Any) -> datetime | None:
    """Return the watermark; None if there is none, or no event has moved it yet."""
    try:
        at = datetime.fromisoformat(str(event_time["watermark"])).astimezone(UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    return at if at.timestamp() > 0 else None


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def after_9999(spec: Mapping[str, Any]) -> str:
    """Return the meaning of a watermark after the year 9999 for a definition, and the remedy.

    Spark's JSON and CSV readers interpret an integer in a TIMESTAMP column as seconds.
    """
    sources = spec.get("sources")
    marks = [source.get("watermark") for source in sources or () if isinstance(source, Mapping)]
    columns = [str(mark["column"]) for mark in marks if isinstance(mark, Mapping)]
    named = f"the column {' or '.join(columns)}" if columns else "its event-time column"
    example = columns[0] if len(columns) == 1 else "it"
    return (
        "The watermark is after the year 9999, so all later rows count as late and are "
        f"dropped. The likely cause: {named} holds milliseconds since 1970, and Spark reads "
        "whole numbers in a TIMESTAMP column as seconds. Read it as BIGINT and convert it with "
        f"timestamp_millis({example}). A watermark never moves back, so reset the query afterwards."
    )
