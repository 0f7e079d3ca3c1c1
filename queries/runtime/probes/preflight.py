"""Test a definition against copies of its query's checkpoint, without changing real data.

The test reads from the real source. It executes the newest batch in the copy again, followed by a
little new data from the source; the output of both is discarded (`noop`). If the sink writes files,
the same batch is also written to a temporary folder. Spark's report about each attempt is stored.
"""

import contextlib
import importlib
import json
import sys
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from headgate_ground import spark_names
from queries import host_pressure
from queries.checkpoints.file_sink import LOG, write_empty_log
from queries.domain.definitions.allowed_paths import AllowedPaths
from queries.domain.definitions.spec import (
    ENDING_TRIGGERS,
    HOLDING_TRIGGERS,
    TRIGGERS,
    UNLISTED_SINKS,
)
from queries.domain.probes.questions import (
    AttemptEnd,
    PlanSeen,
    PreflightAttempt,
    PreflightTask,
    Tried,
)
from queries.runtime import build
from queries.runtime.checkpoints.s3_names import refuse_s3_names
from queries.runtime.failures.error_capture import from_java, from_python
from queries.runtime.probes.io import (
    FILE_FORMATS,
    bound_readers,
    note_writers,
    tracks_asynchronously,
    written_to,
)
from queries.secret_references import References
from queries.spark_parser.analyzer import nodes_of

TICK_S = 0.05
NOTHING_S = 2.0  # a source that has answered and then waits for data this long has nothing new
TRIGGER_S = 3.0  # Spark rejects a trigger at start() or in the first batch
#: Sinks that Spark tracks asynchronously (verified with `start()` of 4.3). A definition cannot
#: specify "foreach": only a function's writer can have it.
ASYNC_SINKS = UNLISTED_SINKS | {"foreach"}
_INSUFFICIENT = "INSUFFICIENT_SLOT"  # too few of the probe's cores, not of the application's


class Publisher(Protocol):
    """Where a probe reports its progress and its findings."""

    report: Any

    def publish(self, **changes: Any) -> None:
        """Replace the published findings with the current ones."""

    def step(self, phrase: str) -> Any:
        """Report the step in the block, and afterwards how long it took."""


def run(
    spark: Any,
    task: PreflightTask,
    references: References,
    publisher: Publisher,
    *,
    code_roots: tuple[str, ...] = (),
    roots: AllowedPaths | None = None,
) -> None:
    """Execute a preflight's task; raise only if the definition cannot be built at all.

    `code_roots` are the folders from which the new definition's code is imported.
    """
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter

    bound_readers(DataStreamReader)
    note_writers(DataStreamWriter)
    Path(task.scratch).mkdir(mode=0o700, parents=True, exist_ok=True)
    with publisher.step("Reading the definition"):
        tries = Tries(spark, task, references, roots)
        publisher.publish(plan=tries.plan(), sink=tries.sink)
    for attempt, phrase in _PHRASES.items():
        if not tries.wanted(attempt):
            continue
        with publisher.step(phrase):
            tried = tries.take(attempt)
        publisher.publish(tried=(*publisher.report.tried, tried), partitions=tries.partitions)
    if task.old_spec is not None:
        with publisher.step("Comparing the plans"):
            publisher.publish(old_plan=old_plan(spark, task, references, code_roots, roots))


_PHRASES = {
    PreflightAttempt.REPLAY: "Executing the newest batch again",
    PreflightAttempt.FRESH: "Reading new data at the source",
    PreflightAttempt.SINK: "Writing to a temporary folder",
    PreflightAttempt.TRIGGER: "Starting with its own trigger",
}


class AsyncRefused(Exception):
    """Spark's error when the real query would start; the probe's own sink and trigger differ."""


class Tries:
    """The attempts to start one definition."""

    def __init__(
        self, spark: Any, task: PreflightTask, references: References, roots: AllowedPaths | None
    ) -> None:
        self.spark, self.task, self.references = spark, task, references
        if task.copy:
            refuse_s3_names(spark, task.spec, f"file://{task.copy}")
        self.session = _session(spark, task.spec, references)
        self.frame, self.writer = build.rows(
            self.session, task.spec, references=references, roots=roots
        )
        spec_sink = task.spec.get("sink") or {}
        self.sink = str(spec_sink.get("format", "")).lower()
        self.mode = str(spec_sink.get("output_mode", "append"))
        options = {str(k).lower(): str(v).lower() for k, v in spec_sink.get("options", {}).items()}
        self.tracks = options.get("asyncprogresstrackingenabled") == "true"
        if self.writer is not None:
            self.sink, self.mode = written_to(self.writer)
            self.tracks = tracks_asynchronously(self.writer)
        self.failed = False
        self.partitions: dict[str, int] = {}  # of the topics that a fresh batch has read

    def plan(self) -> PlanSeen:
        """Return the definition as Spark analyzes it."""
        return _plan(self.frame, self.mode)

    def wanted(self, attempt: PreflightAttempt) -> bool:
        """Return whether any attempt is requested."""
        match attempt:
            case PreflightAttempt.REPLAY:
                return bool(self.task.copy)
            case PreflightAttempt.FRESH:
                return True
            case PreflightAttempt.SINK:
                return self.sink in FILE_FORMATS
            case PreflightAttempt.TRIGGER:
                return self._trigger["kind"] in HOLDING_TRIGGERS

    def take(self, attempt: PreflightAttempt) -> Tried:
        """Start the definition in one way and wait for the outcome."""
        if self.failed:
            return Tried(attempt, AttemptEnd.SKIPPED)
        began = time.monotonic()
        try:
            end, batch, rows, error = self._start(attempt)
        except Exception as raised:
            raised_error = asdict(from_python(raised, self.references.mask))
            end, batch, rows, error = AttemptEnd.FAILED, None, None, raised_error
        self.failed = end is AttemptEnd.FAILED
        ms = int((time.monotonic() - began) * 1000)
        return Tried(attempt, end, batch, rows, ms, error)

    # --- one start --------------------------------------------------------------------

    def _start(self, attempt: PreflightAttempt) -> tuple[AttemptEnd, int | None, int | None, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # "once" is intended here
            query = self._writer(attempt).start()
        limit_s = TRIGGER_S if attempt is PreflightAttempt.TRIGGER else self.task.attempt_limit_s
        try:
            return self._watch(query._jsq, attempt, limit_s)
        finally:
            self.partitions |= _partitions(query._jsq)
            _stop(query._jsq)

    def _writer(self, attempt: PreflightAttempt) -> Any:
        task, scratch = self.task, Path(self.task.scratch)
        once: dict[str, Any] = {"once": True}
        fresh: dict[str, Any] = {"processingTime": "0 seconds"}
        match attempt:
            case PreflightAttempt.REPLAY:
                return self._noop(task.copy, once)
            case PreflightAttempt.FRESH:
                writer = self._noop(task.copy or str(scratch / "fresh"), fresh)
                return self._tracking(writer) if self.tracks else writer
            case PreflightAttempt.SINK:
                target = scratch / "output"
                if task.sink_copy and task.batch is not None:
                    write_empty_log(target / LOG, task.batch - 1)  # Spark appends `batch` to it
                writer = self._to_files(str(target))
                location = task.sink_copy or str(scratch / "sink")
                trigger = once if task.sink_copy else fresh
                return writer.option("checkpointLocation", location).trigger(**trigger)
            case PreflightAttempt.TRIGGER:
                kind = TRIGGERS[self._trigger["kind"]].spark
                writer = self.frame.writeStream.format("memory").queryName("probe_trigger")
                writer = writer.outputMode(self.mode).option(
                    "checkpointLocation", str(scratch / "trigger")
                )
                return writer.trigger(**{kind: self._trigger.get("interval", "5 seconds")})

    def _noop(self, checkpoint: str, trigger: dict[str, Any]) -> Any:
        writer = self.frame.writeStream.format("noop").outputMode(self.mode)
        return writer.option("checkpointLocation", checkpoint).trigger(**trigger)

    def _tracking(self, writer: Any) -> Any:
        """Track progress asynchronously if the definition's own sink would and could do so."""
        if self._trigger["kind"] in ENDING_TRIGGERS:
            raise AsyncRefused(
                "Async progress tracking cannot be used with Once / AvailableNow trigger"
            )
        if self.sink not in ASYNC_SINKS:
            raise AsyncRefused(f"Sink {self.sink} does not support async progress tracking")
        return writer.option("asyncProgressTrackingEnabled", "true")

    def _to_files(self, target: str) -> Any:
        if self.writer is not None:
            return self.writer.option("path", target)
        sink = self.task.spec["sink"]
        options = {k: v for k, v in sink.get("options", {}).items() if k.lower() != "path"}
        writer = self.frame.writeStream.format(sink["format"]).outputMode(self.mode)
        writer = writer.options(**self.references.resolve_all(options)).option("path", target)
        columns = sink.get("partition_by") or ()
        return writer.partitionBy(*columns) if columns else writer

    def _watch(
        self, jquery: Any, attempt: PreflightAttempt, limit_s: float
    ) -> tuple[AttemptEnd, int | None, int | None, Any]:
        """Return how the attempt ends: on its own, after a batch with rows, idle, or timed out.

        While the host is busy, the time does not count; the probe's own limit does.
        """
        idle_since: float | None = None
        since = looked_at = time.monotonic()
        while looked_at - since < limit_s:
            active = bool(jquery.isActive())  # read first, so that the rest is its final report
            batch, rows = _newest_batch(jquery)
            failure = jquery.exception()
            if failure.isDefined():
                stream_error = from_java(failure.get(), self.references.mask)
                if (
                    attempt is PreflightAttempt.TRIGGER
                    and _INSUFFICIENT in stream_error.error_class
                ):
                    return AttemptEnd.PASSED, None, None, None
                return AttemptEnd.FAILED, batch, rows, asdict(stream_error)
            if not active:
                return AttemptEnd.PASSED, batch, rows, None
            ends_alone = attempt is PreflightAttempt.REPLAY or bool(self.task.sink_copy)
            if attempt is PreflightAttempt.FRESH or (
                attempt is PreflightAttempt.SINK and not ends_alone
            ):
                if rows:
                    return AttemptEnd.PASSED, batch, rows, None
                idle_since = _idle_since(jquery.status(), idle_since)
                if idle_since is not None and time.monotonic() - idle_since > NOTHING_S:
                    return AttemptEnd.NOTHING, batch, rows, None
            time.sleep(TICK_S)  # Spark has no event that a private probe could wait for
            before, looked_at = looked_at, time.monotonic()
            if attempt is not PreflightAttempt.TRIGGER and host_pressure.read_pressure().is_high:
                since += looked_at - before
        if (
            attempt is PreflightAttempt.TRIGGER
        ):  # nothing was rejected, which is all that matters here
            return AttemptEnd.PASSED, None, None, None
        return AttemptEnd.LATE, batch, rows, None

    @property
    def _trigger(self) -> dict[str, Any]:
        trigger: dict[str, Any] = self.task.spec.get("trigger") or {"kind": "processing_time"}
        return trigger


# --- the previous plan ----------------------------------------------------------------


def old_plan(
    spark: Any,
    task: PreflightTask,
    references: References,
    code_roots: tuple[str, ...],
    roots: AllowedPaths | None,
) -> PlanSeen:
    """Return Spark's plan for the definition that last ran on the checkpoint, or why there is none.

    The plan is never executed, so importing the old modules instead of the new ones is safe here.
    """
    assert task.old_spec is not None
    if task.old_spec.get("kind") == "python" and not task.same_code:
        _exchange_code(code_roots, task.old_code_roots)
    try:
        session = _session(spark, task.old_spec, references)
        frame, writer = build.rows(session, task.old_spec, references=references, roots=roots)
    except Exception as error:
        plan_error = from_python(error, references.mask)
        return PlanSeen(missing=f"it can no longer be read: {plan_error.root_cause}")
    spec_sink = task.old_spec.get("sink") or {}
    mode = str(spec_sink.get("output_mode", "append"))
    return _plan(frame, written_to(writer)[1] if writer is not None else mode)


def _exchange_code(new: tuple[str, ...], old: tuple[str, ...]) -> None:
    """Import the old code from now on, and remove the new code from the import system."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if any(file.startswith(f"{root}/") for root in new):
            del sys.modules[name]
    sys.path[:] = [*old, *(path for path in sys.path if path not in new)]
    importlib.invalidate_caches()


# --- helpers --------------------------------------------------------------------------


def _session(spark: Any, spec: dict[str, Any], references: References) -> Any:
    session = spark.newSession()
    session.conf.set("spark.sql.debug.maxToStringFields", "1000")
    for name, value in build.session_conf(spec, references).items():
        session.conf.set(name, value)
    spark_names.activate(session)
    return session


def _plan(frame: Any, mode: str) -> PlanSeen:
    columns = tuple((field.name, field.dataType.simpleString()) for field in frame.schema.fields)
    return PlanSeen(nodes_of(frame._jdf.queryExecution().analyzed()), mode, columns)


def _newest_batch(jquery: Any) -> tuple[int | None, int | None]:
    """Return the newest executed batch and its rows; None if there is none yet."""
    progress = jquery.lastProgress()
    if progress is None:
        return None, None
    body = json.loads(progress.json())
    if "addBatch" not in body.get("durationMs", {}):  # an idle trigger (trap 14)
        return None, None
    rows = sum(source.get("numInputRows", 0) for source in body.get("sources", ()))
    return body["batchId"], rows


def _partitions(jquery: Any) -> dict[str, int]:
    """Return how many partitions each Kafka topic has, from the newest progress."""
    with contextlib.suppress(Exception):  # a terminated query reports nothing
        progress = jquery.lastProgress()
        sources = json.loads(progress.json()).get("sources", ()) if progress is not None else ()
        ends = [
            source["endOffset"] for source in sources if isinstance(source.get("endOffset"), dict)
        ]
        return {
            topic: len(offsets)
            for end in ends
            for topic, offsets in end.items()
            if isinstance(offsets, dict)
        }
    return {}


def _idle_since(status: Any, before: float | None) -> float | None:
    """Return since when a responding source has had no new data; None if it is not idle."""
    if status.isDataAvailable():
        return None
    # Between two waits it queries its source again, and reports that: it is still idle.
    if before is None and str(status.message()).startswith("Waiting for data"):
        return time.monotonic()
    return before


def _stop(jquery: Any) -> None:
    try:
        jquery.stop()
    except Exception:  # a failed batch in a throw-away query is not a finding
        return
