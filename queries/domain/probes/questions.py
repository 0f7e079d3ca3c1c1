"""The tasks and results of probe drivers, each a short-lived Spark for one task.

A probe driver tests a definition against a copy of a checkpoint (preflight), or reads the rows of a
state store (state inspection). Its task is stored in `probe.json`, and its findings so far in
`result.json`, which it replaces atomically after every step. Both sides import this module, but
nothing from each other.
"""

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from queries.domain.protocol import WireForm

TASK = "probe.json"
RESULT = "result.json"
#: Several times the size of the largest result: an inspection of 500 rows of 4,000 characters.
MOST_CHARACTERS = 16_000_000

#: Columns of the statement that counts rows by key: those of a key, and those of all keys.
KEY_ROWS, TOTAL_ROWS = "_headgate_rows", "_headgate_total"
#: Fields that are always reported about a batch's records.
RECORDS_PARTS = ("sources", "searched", "failing")
#: Fields that a state inspection always reports about state.
STATE_NUMBERS = ("operators", "operator", "partitions", "rows", "bytes")


class UnreadableResult(ValueError):
    """A file does not contain a complete result of a probe driver."""


class PreflightAttempt(StrEnum):
    """The attempts of a preflight, in this order."""

    REPLAY = "replay"  # run the newest batch of the copy again
    FRESH = "fresh"  # read a little of what the source has after it
    SINK = "sink"  # write the same batch to a throw-away location with the same kind of sink
    TRIGGER = "trigger"  # start the real trigger, for long enough that Spark can reject it


class AttemptEnd(StrEnum):
    """How an attempt ended."""

    PASSED = "passed"
    FAILED = "failed"
    NOTHING = "nothing"  # the source reported nothing new
    LATE = "late"  # not finished in time
    SKIPPED = "skipped"  # an earlier attempt failed


@dataclass(frozen=True, slots=True)
class PreflightTask(WireForm):
    """A definition to try, and where."""

    name: str  # the query's
    spec: dict[str, Any]  # QuerySpec's JSON form
    scratch: str  # folder for throw-away checkpoints and output
    limit_s: float  # total, counted from when Spark is up
    attempt_limit_s: float  # for each start
    batch: int | None = None  # the copies' newest batch; None if there is no copy
    copy: str = ""  # a copy of the checkpoint, its newest batch not committed; "" for none
    sink_copy: str = ""  # a second copy, for the throw-away sink
    old_spec: dict[str, Any] | None = None  # the last definition that ran on the checkpoint
    old_code_roots: tuple[str, ...] = ()  # the code that it ran
    same_code: bool = True  # whether both definitions run the same code
    kind: str = "preflight"


@dataclass(frozen=True, slots=True)
class XrayTask(WireForm):
    """A state store to read."""

    checkpoint: str  # canonical location of a copy, or of a checkpoint at rest
    limit_s: float  # from when Spark is up
    rows: int  # maximum rows of the store to show
    operator: int = 0
    store: str = "default"  # name of the store within the operator
    side: str = ""  # "left" or "right" of a stream-stream join
    variable: str = ""  # of transformWithState
    batch: int | None = None  # None: the newest committed
    contains: str = ""  # text contained in the key, as JSON
    state_format: int = 1  # 2: commits identify versions of the state by unique IDs
    kind: str = "x-ray"


@dataclass(frozen=True, slots=True)
class BatchRead(WireForm):
    """What one batch read from one source: files, or offsets of Kafka partitions."""

    source: str  # the source's name in the definition
    files: tuple[str, ...] = ()
    start: dict[str, dict[str, int]] = field(default_factory=dict)  # topic -> partition -> offset
    end: dict[str, dict[str, int]] = field(default_factory=dict)  # exclusive


@dataclass(frozen=True, slots=True)
class RecordsTask(WireForm):
    """Records of a batch to show, and the failing record to find."""

    spec: dict[str, Any]  # QuerySpec's JSON form
    reads: tuple[BatchRead, ...]
    rows: int  # shown per source
    looked_at: int  # maximum records examined per source
    limit_s: float  # from when Spark is up
    search_s: float  # for finding the failing record
    keys_sql: str = ""  # counts rows by key (`hot_keys`); "" if the query groups by nothing
    sampled: int = 0  # rows among which keys are counted, at most about this many
    batch_rows: int = 0  # of the whole batch; 0: unknown
    kind: str = "records"


#: The task type of each kind of probe.
TASKS: dict[str, type[PreflightTask | XrayTask | RecordsTask]] = {
    "preflight": PreflightTask,
    "x-ray": XrayTask,
    "records": RecordsTask,
}


def read_task(text: str) -> PreflightTask | XrayTask | RecordsTask:
    """Return the task in `text`."""
    return TASKS[json.loads(text)["kind"]].loads(text)


@dataclass(frozen=True, slots=True)
class Tried:
    """One attempt to start the definition."""

    attempt: PreflightAttempt
    end: AttemptEnd
    batch: int | None = None
    rows: int | None = None
    ms: int = 0
    error: dict[str, Any] | None = None  # fields of `protocol.RunError`


@dataclass(frozen=True, slots=True)
class PlanSeen:
    """A definition as Spark analyzed it, or why that is not available."""

    nodes: dict[str, Any] | None = None  # the analyzed plan (`domain.probes.plan_shapes`)
    output_mode: str = ""
    columns: tuple[tuple[str, str], ...] = ()  # name and type, as Spark writes them
    missing: str = ""


@dataclass(frozen=True, slots=True)
class ProbeResult(WireForm):
    """What a probe driver has found so far."""

    at: str  # its current step, as a phrase: "Starting Spark"
    done: bool = False
    took_ms: dict[str, int] = field(default_factory=dict)  # per phrase
    error: dict[str, Any] | None = None  # set if Spark or the definition could not be built
    tried: tuple[Tried, ...] = ()
    plan: PlanSeen | None = None
    old_plan: PlanSeen | None = None
    sink: str = ""  # the format used by the user's own writer, if any
    partitions: dict[str, int] = field(default_factory=dict)  # number per topic that was read
    state: dict[str, Any] | None = None  # from a state inspection
    records: dict[str, Any] | None = None  # from a batch


#: Fields of a result on which decisions depend, with their required types.
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
    """Return the result in `text`; raise `UnreadableResult` if it is incomplete."""
    if len(text) > MOST_CHARACTERS:
        raise UnreadableResult(f"it has more than {MOST_CHARACTERS:,} characters")
    try:
        result = ProbeResult.loads(text)
        # The defaults of these fields would mean that everything is fine.
        if lacking := {"tried", "plan", "old_plan"} - json.loads(text).keys():
            raise KeyError(*sorted(lacking))
    except RecursionError as error:
        raise UnreadableResult("it is nested too deeply") from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableResult(f"{type(error).__name__}: {error}") from error
    for name, kind in _KINDS.items():
        if not isinstance(getattr(result, name), kind):
            raise UnreadableResult(f"its {name} is not valid")
    if result.state is not None and not result.state.keys() >= set(STATE_NUMBERS):
        raise UnreadableResult("numbers are missing from its state")
    if result.records is not None and not result.records.keys() >= set(RECORDS_PARTS):
        raise UnreadableResult("parts of its records are missing")
    return result
