"""Explain why a batch was slow: each cause with its milliseconds, and one sentence.

The driver's evidence (`listeners.spark.slow_batches`) describes the batch's stages, and Spark's
progress its phases. Spark measures phases, waits, garbage collection and shuffles. It does not
measure the time that a spill costs, so that is estimated from the bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Self

from headgate_ground.tolerant import count, time_of
from queries.domain.kafka.lag import kafka_offsets
from queries.domain.readings import counted


class BatchCause(StrEnum):
    """What took a batch's time."""

    SKEW = "skew"
    SLOW_TASK = "slow_task"  # one task of about as many rows as the others
    SPILL = "spill"
    GC = "gc"
    PYTHON = "python"
    SOURCE = "source"
    SINK = "sink"
    CORES = "cores"
    CHECKPOINT = "checkpoint"
    SHUFFLE = "shuffle"
    DRIVER = "driver"
    WORK = "work"  # the tasks' own work, which has no particular cause

    @property
    def label(self) -> str:
        """Return a phrase for the cause, for a line of several causes."""
        return _LABELS.get(self, self.value)


_LABELS = {
    BatchCause.SLOW_TASK: "one slow task",
    BatchCause.GC: "garbage collection",
    BatchCause.PYTHON: "Python",
    BatchCause.CORES: "waiting for cores",
}

#: Phases of Spark's `durationMs`, by the cause that they are.
_SOURCE = ("latestOffset", "getBatch", "setOffsetRange", "getOffset")
_CHECKPOINT = ("walCommit", "commitOffsets", "commitBatch")
#: The longest task is slow from this multiple of the median task …
SLOW = 2.0
#: … and skewed if it also read this multiple of an equal share of the rows or bytes.
SKEWED = 1.5
#: A smaller part of the batch is not mentioned, unless it is the largest one.
WORTH_TELLING = 0.25
#: Bytes of rows spilled per ms and core: sorting, writing, reading and merging (an estimate).
SPILLED_PER_MS = 25_000
#: A shuffle is too fine from this many tasks per core, if each has at most this many rows.
_FINE_TASKS, _FINE_ROWS = 8, 1_000
#: Characters of a name that a driver reports: a host's has at most 253.
_NAME_LENGTH = 255
#: A partition is named if its share of the rows differs by at most this from the task's.
_SAME_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class StageSeen:
    """One stage of a batch; times are milliseconds, sums are over its tasks."""

    stage: int = 0
    tasks: int = 0
    submitted: int = 0  # since 1970
    first_task: int = 0  # since 1970
    ended: int = 0  # since 1970
    run_ms: int = 0
    gc_ms: int = 0
    spilled_bytes: int = 0  # of rows in memory
    fetch_ms: int = 0
    write_ms: int = 0  # of shuffle files
    shuffle_rows: int = 0  # read
    input_rows: int = 0
    longest_ms: int = 0
    longest_rows: int = 0
    median_ms: int = 0
    bytes: int = 0  # read, from sources and shuffles
    longest_bytes: int = 0
    longest_executor: str = ""  # Spark's id of it; "driver" with a local master
    longest_host: str = ""

    @classmethod
    def read(cls, body: object) -> Self:
        """Return the stage in a driver's evidence; anything impossible is 0, or ""."""
        values_by_name = body if isinstance(body, dict) else {}
        texts = {
            name: _name(values_by_name.get(name)) for name in ("longest_executor", "longest_host")
        }
        values: dict[str, Any] = {
            stage_field.name: count(values_by_name.get(stage_field.name)) or 0
            for stage_field in fields(cls)
        }
        return cls(**{**values, **texts})

    @property
    def rows(self) -> int:
        """Return the rows that the stage read."""
        return self.input_rows + self.shuffle_rows

    @property
    def share(self) -> float | None:
        """Return the longest task's share of the rows or bytes; None if neither is known."""
        read = ((self.longest_rows, self.rows), (self.longest_bytes, self.bytes))
        return max((min(1.0, own / whole) for own, whole in read if whole), default=None)

    @property
    def is_uneven(self) -> bool:
        """Return whether one task took much longer than the others."""
        return self.tasks > 1 and self.longest_ms >= SLOW * max(1, self.median_ms)

    @property
    def is_skewed(self) -> bool:
        """Return whether that is because the task read much more than the others."""
        share = self.share
        return self.is_uneven and share is not None and share * self.tasks >= SKEWED


@dataclass(frozen=True, slots=True)
class BatchEvidence:
    """Everything known about one batch."""

    batch: int
    took_ms: int
    started: int | None = None  # ms since 1970
    phases: Mapping[str, int] = field(default_factory=dict)  # Spark's durationMs
    partitions: Mapping[str, int] = field(default_factory=dict)  # rows by Kafka partition
    foreach_batch: bool = False
    state_commit_ms: int = 0  # summed over the state's partitions
    stages: tuple[StageSeen, ...] | None = None  # None: unknown
    cores: int = 1
    python_ms: int = 0  # summed over tasks
    median_ms: int | None = None  # of the batches before it


@dataclass(frozen=True, slots=True)
class CauseShare:
    """A cause of a slow batch."""

    cause: BatchCause
    ms: int  # of the batch
    text: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a batch was slow: its causes, largest first, and one sentence."""

    causes: tuple[CauseShare, ...]
    says: str


def evidence_of(progress: Mapping[str, Any], driver: Mapping[str, Any] | None) -> BatchEvidence:
    """Return the evidence from Spark's progress and from the driver (None: there is none)."""
    began = time_of(progress.get("timestamp"))
    spent = progress.get("durationMs")
    phases = spent if isinstance(spent, dict) else {}
    phase_ms = {name: ms for name, ms in phases.items() if count(ms) is not None}
    sink = progress.get("sink")
    about = str(sink.get("description", "")) if isinstance(sink, dict) else ""
    driver_evidence = driver or {}
    stages = driver_evidence.get("stages")
    took = count(progress.get("batchDuration")) or phase_ms.get("triggerExecution", 0)
    return BatchEvidence(
        batch=count(progress.get("batchId")) or 0,
        took_ms=took,
        started=None if began is None else round(began.timestamp() * 1000),
        phases=phase_ms,
        partitions=_partition_rows(_parts(progress.get("sources"))),
        foreach_batch="foreachbatch" in about.lower(),
        state_commit_ms=sum(
            count(operator.get("commitTimeMs")) or 0
            for operator in _parts(progress.get("stateOperators"))
        ),
        stages=tuple(map(StageSeen.read, stages)) if isinstance(stages, list) else None,
        cores=count(driver_evidence.get("cores")) or 1,
        python_ms=count(driver_evidence.get("python_ms")) or 0,
        median_ms=count(driver_evidence.get("median_ms")),
    )


def diagnose(evidence: BatchEvidence) -> Diagnosis:
    """Return the causes of a batch's duration, largest first, and the sentence for the page."""
    spent = dict.fromkeys(BatchCause, 0.0)
    spent[BatchCause.SOURCE] = float(sum(evidence.phases.get(name, 0) for name in _SOURCE))
    spent[BatchCause.CHECKPOINT] = float(sum(evidence.phases.get(name, 0) for name in _CHECKPOINT))
    outside_batch = spent[BatchCause.SOURCE] + spent[BatchCause.CHECKPOINT]
    adding = evidence.phases.get("addBatch", 0)
    spent[BatchCause.DRIVER] = max(0.0, evidence.took_ms - outside_batch - adding)
    if evidence.stages is not None:
        _outside(evidence, adding, spent)
        scale = _covered(evidence.stages) / max(1, sum(_wall(stage) for stage in evidence.stages))
        for stage in evidence.stages:
            for cause, ms in _inside(stage, evidence).items():
                spent[cause] += ms * scale
    shares = [CauseShare(cause, round(ms), "") for cause, ms in spent.items() if ms >= 1]
    ranked = sorted(shares, key=lambda share: -share.ms)
    causes = tuple(CauseShare(share.cause, share.ms, _text(share, evidence)) for share in ranked)
    return Diagnosis(causes, _says(evidence, causes, adding))


# --- milliseconds ---------------------------------------------------------------------------
def _outside(evidence: BatchEvidence, adding: int, spent: dict[BatchCause, float]) -> None:
    """Add the part of `addBatch` in which no stage ran: before, between or after stages."""
    stages = evidence.stages or ()
    outside = max(0.0, adding - _covered(stages))
    if evidence.foreach_batch:
        after = outside
    elif stages and evidence.started is not None:
        last = evidence.phases.get("commitOffsets", 0) + evidence.phases.get("commitBatch", 0)
        end = evidence.started + evidence.took_ms - last
        after = min(outside, max(0.0, end - max(stage.ended for stage in stages)))
    else:
        after = 0.0
    spent[BatchCause.SINK] += after
    spent[BatchCause.DRIVER] += outside - after


def _inside(stage: StageSeen, evidence: BatchEvidence) -> dict[BatchCause, float]:
    """Divide a stage's duration among its causes; skew competes with the others."""
    waited = float(max(0, stage.first_task - stage.submitted))
    ran = max(0.0, _wall(stage) - waited)
    slots = max(1, min(stage.tasks, evidence.cores))
    busy = min(ran, max(stage.longest_ms, stage.run_ms / slots))
    left = busy
    parts: dict[BatchCause, float] = {}

    def take(cause: BatchCause, ms: float) -> None:
        nonlocal left
        parts[cause] = parts.get(cause, 0.0) + min(left, ms)
        left -= min(left, ms)

    share = busy / max(1, stage.run_ms)  # of the stage's duration per ms of its tasks
    whole = max(1, sum(other.run_ms for other in evidence.stages or ()))
    fine = _is_fine(stage, evidence.cores)
    take(BatchCause.GC, stage.gc_ms * share)
    take(BatchCause.PYTHON, evidence.python_ms * stage.run_ms / whole * share)
    take(BatchCause.SHUFFLE, (stage.fetch_ms + stage.write_ms) * share)
    take(BatchCause.SPILL, stage.spilled_bytes / SPILLED_PER_MS / slots)
    if stage.shuffle_rows and not fine:
        take(BatchCause.CHECKPOINT, evidence.state_commit_ms * share)
    take(BatchCause.SHUFFLE if fine else BatchCause.WORK, left)
    idle = BatchCause.SHUFFLE if fine else BatchCause.CORES
    parts[idle] = parts.get(idle, 0.0) + ran - busy
    parts[BatchCause.CORES] = parts.get(BatchCause.CORES, 0.0) + waited
    if stage.is_uneven:
        uneven = BatchCause.SKEW if stage.is_skewed else BatchCause.SLOW_TASK
        parts[uneven] = min(ran, stage.longest_ms - stage.median_ms)
        parts[BatchCause.WORK] = max(0.0, parts.get(BatchCause.WORK, 0.0) - parts[uneven])
    return parts


def _is_fine(stage: StageSeen, cores: int) -> bool:
    """Return whether a stage reads a shuffle in far more tasks than its rows need."""
    many = stage.tasks >= _FINE_TASKS * cores
    return many and stage.input_rows == 0 and stage.shuffle_rows <= _FINE_ROWS * stage.tasks


def _wall(stage: StageSeen) -> int:
    return max(0, stage.ended - stage.submitted)


def _covered(stages: Iterable[StageSeen]) -> int:
    """Return the milliseconds in which at least one stage was submitted and had not ended."""
    covered, until = 0, 0
    for current_stage in sorted(stages, key=lambda stage: stage.submitted):
        covered += max(0, current_stage.ended - max(current_stage.submitted, until))
        until = max(until, current_stage.ended)
    return covered


# --- rows of partitions ---------------------------------------------------------------------
def _parts(listed: object) -> list[dict[str, Any]]:
    return [part for part in listed if isinstance(part, dict)] if isinstance(listed, list) else []


def _partition_rows(sources: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Return how many rows a batch read from each Kafka partition, by its name in a sentence."""
    rows: dict[str, int] = {}
    for source in sources:
        before = kafka_offsets(source.get("startOffset"))
        for topic, partitions in kafka_offsets(source.get("endOffset")).items():
            for number, end in partitions.items():
                start = before.get(topic, {}).get(number, end)
                rows[f"partition {number} of topic {topic}"] = max(0, end - start)
    return rows


# --- words ----------------------------------------------------------------------------------
def _says(evidence: BatchEvidence, causes: tuple[CauseShare, ...], adding: int) -> str:
    usual = f" (median {_time(evidence.median_ms)})" if evidence.median_ms else ""
    head = f"Batch {evidence.batch:,} took {_time(evidence.took_ms)}{usual}"
    if evidence.stages is None and adding * 2 > evidence.took_ms:
        return (
            f"{head}: {_time(adding)} of it went into Spark's tasks and the sink; there is no "
            "stage data for this batch."
        )
    if not causes:
        return f"{head}; Spark reported no times for it."
    least = WORTH_TELLING * evidence.took_ms
    texts = [cause.text for cause in causes[:2] if cause.ms >= least] or [causes[0].text]
    return f"{head}: {'; '.join(texts)}."


def _text(share: CauseShare, evidence: BatchEvidence) -> str:
    stages = evidence.stages or ()
    ms = _time(share.ms)
    match share.cause:
        case BatchCause.SKEW:
            return _skew(
                max(stages, key=lambda stage: (stage.is_skewed, stage.longest_ms)), evidence
            )
        case BatchCause.SLOW_TASK:
            alone = (stage for stage in stages if stage.is_uneven and not stage.is_skewed)
            return _slow_task(max(alone, key=lambda stage: stage.longest_ms))
        case BatchCause.SPILL:
            size = _size(sum(stage.spilled_bytes for stage in stages))
            return f"its tasks spilled {size} to disk for lack of memory, which took about {ms}"
        case BatchCause.GC:
            gc, run = sum(stage.gc_ms for stage in stages), sum(stage.run_ms for stage in stages)
            return f"garbage collection took {ms}, {_percent(gc, run)} of its tasks' time"
        case BatchCause.PYTHON:
            run = sum(stage.run_ms for stage in stages)
            part = _percent(evidence.python_ms, run)
            return f"Python functions took {ms}, {part} of its tasks' time"
        case BatchCause.SOURCE:
            return f"the source took {ms} to answer ({_longest(_SOURCE, evidence)})"
        case BatchCause.SINK:
            what = "the foreachBatch function" if evidence.foreach_batch else "the sink's commit"
            return f"{what} took {ms} outside Spark's tasks"
        case BatchCause.CORES:
            return f"its tasks waited {ms} for {_free(evidence.cores)}"
        case BatchCause.CHECKPOINT:
            return f"writing the checkpoint took {ms} ({_checkpoint(evidence)})"
        case BatchCause.SHUFFLE:
            finest = max(stages, key=lambda stage: (_is_fine(stage, evidence.cores), stage.tasks))
            rows = counted(sum(stage.shuffle_rows for stage in stages), "row")
            return f"its shuffle took {ms} ({counted(finest.tasks, 'task')} for {rows})"
        case BatchCause.DRIVER:
            return f"the driver took {ms} outside Spark's tasks{_planning(evidence)}"
        case _:  # the tasks' own work
            tasks = counted(sum(stage.tasks for stage in stages), "task")
            run = sum(stage.run_ms for stage in stages)
            return f"its {tasks} ran {_time(run)} in total on {counted(evidence.cores, 'core')}"


def _longest_task(stage: StageSeen) -> str:
    text = f"one of {counted(stage.tasks, 'task')} took {_time(stage.longest_ms)}"
    text += f" (median {_time(stage.median_ms)})"
    if stage.longest_executor:
        text += f" on executor {stage.longest_executor} at {stage.longest_host or 'unknown host'}"
    return text


def _slow_task(stage: StageSeen) -> str:
    text = _longest_task(stage)
    if stage.share is None:
        return f"{text}; how much it read is unknown"
    return (
        f"{text}; it read {round(100 * stage.share)} % of the {_what(stage)}, not more than the "
        "others, so its worker was slow or these rows take longer"
    )


def _what(stage: StageSeen) -> str:
    """Return the total to which the longest task's share refers."""
    by_rows = min(1.0, stage.longest_rows / stage.rows) if stage.rows else None
    return "rows" if by_rows is not None and by_rows == stage.share else "bytes"


def _skew(stage: StageSeen, evidence: BatchEvidence) -> str:
    share = stage.share or 0.0
    text = f"{_longest_task(stage)}; it read {round(100 * share)} % of the {_what(stage)}"
    rows = sum(evidence.partitions.values())
    if not stage.input_rows or not rows:
        return text
    name = max(evidence.partitions, key=lambda partition: evidence.partitions[partition])
    same = abs(evidence.partitions[name] / rows - share) <= _SAME_SHARE
    return f"{text} ({name})" if same else text


def _name(value: object) -> str:
    """Return a name as a driver reported it; "" if it is not one."""
    return value[:_NAME_LENGTH] if isinstance(value, str) else ""


def _longest(names: Iterable[str], evidence: BatchEvidence) -> str:
    return max(names, key=lambda name: evidence.phases.get(name, 0))


def _checkpoint(evidence: BatchEvidence) -> str:
    name = _longest(_CHECKPOINT, evidence)
    state = evidence.state_commit_ms / max(1, evidence.cores)
    return "state commit" if state > evidence.phases.get(name, 0) else name


def _planning(evidence: BatchEvidence) -> str:
    planned = evidence.phases.get("queryPlanning", 0)
    return f", {_time(planned)} of it planning the query" if planned else ""


def _free(cores: int) -> str:
    return "the only core" if cores == 1 else f"one of {cores:,} cores"


def _percent(part: float, whole: float) -> str:
    return f"{min(100, round(100 * part / max(1, whole)))} %"


#: Units of a duration and their lengths in ms, longest first.
_UNITS = ((3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _time(ms: float) -> str:
    return _of(ms, _UNITS, "ms")


def _size(size: int) -> str:
    return _of(size, _SIZES, "bytes")


def _of(value: float, units: Iterable[tuple[int, str]], least: str) -> str:
    for unit, name in units:
        if value >= unit:
            number = value / unit
            return f"{number:.0f} {name}" if number >= 10 else f"{number:.1f} {name}"
    return f"{value:.0f} {least}"
