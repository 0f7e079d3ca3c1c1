"""The tasks and results of probe drivers: a short-lived Spark for one question.

A probe driver tries a definition against a copy of a checkpoint (preflight), or reads the rows
of a state store (X-ray). Its task is in `probe.json`, its findings so far in `result.json`,
which it replaces whole after every step; both sides import this module and nothing of each
other.
"""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from queries.domain.protocol import Form

TASK = "probe.json"
RESULT = "result.json"
#: Several times the size of the largest result: an X-ray of 500 rows, each cut at 4,000.
MOST_CHARACTERS = 16_000_000

#: What is always reported about a batch's records.
RECORDS_PARTS = ("sources", "searched", "failing")
#: What an X-ray always reports about a state.
STATE_NUMBERS = ("operators", "operator", "partitions", "rows", "bytes")


class Unreadable(ValueError):
    """A file does not contain a complete result of a probe driver."""


class Attempt(StrEnum):
    """What a preflight starts, in this order."""

    REPLAY = "replay"  # the newest batch of the copy, once more
    FRESH = "fresh"  # what the source has beyond it, a little
    SINK = "sink"  # the same batch into a throw-away place of the real sink's kind
    TRIGGER = "trigger"  # the real trigger, for as long as Spark takes to refuse it


class AttemptEnd(StrEnum):
    """How one of them ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOTHING = "nothing"  # the source answered that it has nothing new
    LATE = "late"  # not done within its time
    SKIPPED = "skipped"  # one before it failed


@dataclass(frozen=True, slots=True)
class PreflightTask(Form):
    """A definition to be tried, and where."""

    name: str  # the query's
    spec: dict[str, Any]  # QuerySpec's JSON form
    scratch: str  # folder for checkpoints and output that are thrown away
    limit_s: float  # for everything, from when Spark is up
    attempt_limit_s: float  # for each start
    batch: int | None = None  # the copies' newest, None where there is no copy
    copy: str = ""  # a copy of the checkpoint, its newest batch not committed; "" for none
    sink_copy: str = ""  # a second one, for the throw-away sink
    old_spec: dict[str, Any] | None = None  # what ran last on the checkpoint
    old_code_roots: tuple[str, ...] = ()  # the code it ran
    same_code: bool = True  # both definitions run the same code
    kind: str = "preflight"


@dataclass(frozen=True, slots=True)
class XrayTask(Form):
    """A state store to be read."""

    checkpoint: str  # canonical location of a copy, or of a checkpoint at rest
    limit_s: float  # from when Spark is up
    rows: int  # of the store that are shown at most
    operator: int = 0
    store: str = "default"  # name of the store within the operator
    side: str = ""  # "left" or "right" of a stream-stream join
    variable: str = ""  # of transformWithState
    batch: int | None = None  # None: the newest committed
    contains: str = ""  # text that the key holds, written as JSON
    state_format: int = 1  # 2: commits name the versions of the state by unique ids
    kind: str = "x-ray"


@dataclass(frozen=True, slots=True)
class BatchRead(Form):
    """What one batch read of one source: files, or offsets of Kafka's partitions."""

    source: str  # the source's name in the definition
    files: tuple[str, ...] = ()
    start: dict[str, dict[str, int]] = field(default_factory=dict)  # topic -> partition -> offset
    end: dict[str, dict[str, int]] = field(default_factory=dict)  # not read any more


@dataclass(frozen=True, slots=True)
class RecordsTask(Form):
    """Records that a batch read, to be looked at, and the one that fails to be found."""

    spec: dict[str, Any]  # QuerySpec's JSON form
    reads: tuple[BatchRead, ...]
    rows: int  # of a source that are shown
    looked_at: int  # of a source at most
    limit_s: float  # from when Spark is up
    search_s: float  # for the search of the record that fails
    kind: str = "records"


#: The task of each kind of probe.
TASKS: dict[str, type[PreflightTask | XrayTask | RecordsTask]] = {
    "preflight": PreflightTask,
    "x-ray": XrayTask,
    "records": RecordsTask,
}


def read_task(text: str) -> PreflightTask | XrayTask | RecordsTask:
    """Return the task that `text` holds."""
    return TASKS[json.loads(text)["kind"]].loads(text)


@dataclass(frozen=True, slots=True)
class Tried:
    """One start of the definition."""

    attempt: Attempt
    end: AttemptEnd
    batch: int | None = None
    rows: int | None = None
    ms: int = 0
    error: dict[str, Any] | None = None  # `protocol.RunError`'s fields


@dataclass(frozen=True, slots=True)
class PlanSeen:
    """A definition as Spark understands it, or why it is not available."""

    nodes: dict[str, Any] | None = None  # the analyzed plan (`plan_shapes`)
    output_mode: str = ""
    columns: tuple[tuple[str, str], ...] = ()  # name and type, as Spark writes it
    missing: str = ""


@dataclass(frozen=True, slots=True)
class ProbeResult(Form):
    """What a probe driver has found so far."""

    at: str  # its current step, as a phrase: "Starting Spark"
    done: bool = False
    took_ms: dict[str, int] = field(default_factory=dict)  # by phrase
    error: dict[str, Any] | None = None  # Spark or the definition could not be built
    tried: tuple[Tried, ...] = ()
    plan: PlanSeen | None = None
    old_plan: PlanSeen | None = None
    sink: str = ""  # the format that a writer of the user's own names, where it does
    partitions: dict[str, int] = field(default_factory=dict)  # of each topic that was read
    state: dict[str, Any] | None = None  # of an X-ray
    records: dict[str, Any] | None = None  # of a batch


#: Fields of a result that decisions read, with the types that they must have.
_KINDS: dict[str, Any] = {
    "at": str,
    "done": bool,
    "took_ms": dict,
    "error": dict | None,
    "sink": str,
    "partitions": dict,
    "state": dict | None,
    "records": dict | None,
}


def read_result(text: str) -> ProbeResult:
    """Return the result in `text`; raise `Unreadable` where it is not a complete one."""
    if len(text) > MOST_CHARACTERS:
        raise Unreadable(f"it has more than {MOST_CHARACTERS:,} characters")
    try:
        result = ProbeResult.loads(text)
        # The defaults of these would mean "all is well".
        if lacking := {"tried", "plan", "old_plan"} - json.loads(text).keys():
            raise KeyError(*sorted(lacking))
    except RecursionError as error:
        raise Unreadable("it is nested too deeply") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from error
    for name, kind in _KINDS.items():
        if not isinstance(getattr(result, name), kind):
            raise Unreadable(f"its {name} is not what it should be")
    if result.state is not None and not result.state.keys() >= set(STATE_NUMBERS):
        raise Unreadable("its state lacks numbers")
    if result.records is not None and not result.records.keys() >= set(RECORDS_PARTS):
        raise Unreadable("its records lack parts")
    return result
