"""One run of one query, from lock to end, in a thread of its own.

What decides how a run ended is what this thread asked for and what the query itself says
(`isActive`, `exception()`); Spark's events may be dropped and only add to it. Nothing that
happens to one run touches another.
"""

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from listeners.spark.telemetry import Telemetry
from queries.domain.protocol import AssignmentEntry, RunError, RunState, RunStatus, Want
from queries.domain.triggers.continuous_epochs import Named
from queries.runtime import build, source_gaps
from queries.runtime.checkpoints.locks import Held, Locks, Refused
from queries.runtime.checkpoints.logs import Checkpoint
from queries.runtime.continuous_epochs import Epochs
from queries.runtime.error_capture import StepFailed, from_java, from_python
from queries.runtime.kafka import producers, topics
from queries.runtime.kafka.producers import Producers
from queries.runtime.liveness import Life
from queries.runtime.query_sessions import Sessions
from queries.runtime.status_report import Board, now
from queries.secret_references import References

logger = logging.getLogger(__name__)

TICK_S = 0.2  # a failure shows in isActive() within it
DRAIN_TICK_S = 0.02  # the next batch begins soon after a commit
STOP_AGAIN_S = 10  # after a stop() that timed out
TERMINATED_WAIT_S = 2  # for the event that may bring the error class
PRODUCER_EVERY_S = 5.0  # between looks at the sink's producer
JVM_NEWS_S = 2  # for the main loop to see that the JVM is gone


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all runs of a driver share."""

    spark: Any
    sessions: Sessions
    locks: Locks
    board: Board
    telemetry: Telemetry
    references: References
    jvm_gone: threading.Event
    spark_stopped: threading.Event  # somebody stopped Spark under its queries: leave
    start_deadline_s: float | None  # from the assignment to Started
    producers: Producers = field(default_factory=Producers)


class _JvmGone(Exception):
    """The JVM has died: the driver's end, reported by the shim; no failure of the query."""


class Run:
    """A run in its thread."""

    def __init__(self, entry: AssignmentEntry, around: Surroundings) -> None:
        self.entry = entry
        self._around = around
        self._guard = threading.Lock()
        self._asked = Want.RUN
        self._deadline: datetime | None = None
        self._news = threading.Event()  # something was asked
        self._over = False  # the board has the run's end; nothing may change it
        self._refusal: RunError | None = None
        self._taken_at = time.monotonic()
        self._started = False
        self._writes_kafka = False
        self._splits = 0.0  # of the JVM's producers, when last looked at
        self._splits_before = 0.0  # and when the query was started
        self._producer_at = 0.0  # monotonic: the next look
        self._thread = threading.Thread(target=self._run, name=f"run-{entry.run}", daemon=True)
        around.references.learn(entry.spec)
        around.board.add(RunStatus(entry.run, entry.query, RunState.STARTING))
        self._thread.start()

    # --- from the main loop -----------------------------------------------------------

    @property
    def working(self) -> bool:
        """Whether the thread still does anything, a hanging start included."""
        return self._thread.is_alive()

    def ask(self, want: Want, deadline: str | None = None) -> None:
        """Ask for an end; a STOP is never taken back, a later deadline replaces the earlier."""
        with self._guard:
            if self._over or want is Want.RUN:
                return
            self._deadline = datetime.fromisoformat(deadline) if deadline else None
            if self._asked in (want, Want.STOP):
                return
            self._asked = want
            self._change(state=RunState.STOPPING, asked_for=want)
        self._news.set()

    def lock_lost(self, error: RunError) -> None:
        """Stop at once: another process has the checkpoint, or the holder is unknown."""
        self._refusal = error
        self.ask(Want.STOP)

    def check_start(self) -> None:
        """Call a start that takes too long a failure; should it ever come, it is stopped."""
        limit, waited = self._around.start_deadline_s, time.monotonic() - self._taken_at
        if limit is not None and waited > limit and not self._started and not self._over:
            text = f"The query was not started within {limit:g} s."
            self._finish(RunState.FAILED, error=RunError("", "StartTimedOut", text, text))
            with self._guard:
                self._asked = Want.STOP
            self._news.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_s)

    # --- the thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._live()
        except _JvmGone:
            logger.info("run %s ends with its JVM", self.entry.run)
        except Exception as error:  # the loop's edge: whatever it was, the run has ended
            if self._is_jvm_gone(error):
                return
            logger.error("run %s failed: %s", self.entry.run, type(error).__name__)
            self._finish(RunState.FAILED, error=from_python(error, self._around.references.mask))

    def _live(self) -> None:
        entry, around = self.entry, self._around
        try:
            held = around.locks.take(
                entry.checkpoint, run=entry.run, epoch=entry.epoch, takeover=entry.takeover
            )
        except Refused as refused:
            self._finish(RunState.REFUSED, error=refused.error)
            return
        query = None
        try:
            if held.warning:
                self._change(warnings=(held.warning,))
            checkpoint = Checkpoint(entry.checkpoint, around.spark)
            before = checkpoint.last_commit()
            query = self._start(checkpoint)
            if query is not None:
                epochs = self._epochs(query, checkpoint, before)
                life = Life(query._jsq, checkpoint, before, epochs)
                self._watch(query._jsq, life)
                self._settle(query._jsq, life, held)
        finally:
            around.producers.leave(entry.run)
            self._let_go(query, held)
        if query is None and self._refusal is None:
            self._finish(RunState.ENDED)

    def _let_go(self, query: Any, held: Held) -> None:
        """Release the checkpoint unless the query, against all, still runs."""
        if query is not None and self._active(query._jsq):
            self._stop(query._jsq)  # the watch itself failed: nothing runs unwatched
            if self._active(query._jsq):
                return
        self._around.locks.release(held)

    def _start(self, checkpoint: Checkpoint) -> Any:
        """Return the started query; None where its end was asked for before."""
        entry, around = self.entry, self._around
        try:
            session = around.sessions.open(entry.query, entry.spec)
            # Read by the thread that calls start(), and inherited by the query's own.
            session.sparkContext.setLocalProperty("spark.scheduler.pool", entry.pool or None)
            with source_gaps.accepting(entry.accepts_loss):
                writer = build.writer(
                    session,
                    entry.spec,
                    name=entry.name,
                    checkpoint=entry.checkpoint,
                    references=around.references,
                )
            if self._asked is not Want.RUN:
                return None
            self._look_at_topics(writer._df, session, checkpoint)
            self._writes_kafka = around.producers.join(entry.run, entry.name, entry.spec)
            if self._writes_kafka:
                self._splits = self._splits_before = producers.splits(session.sparkContext._gateway)
            query = writer.start()
        except Exception as error:
            if self._is_jvm_gone(error):
                raise _JvmGone from error
            told = from_python(error, around.references.mask)
            around.telemetry.start_failed(
                query=entry.query, run=entry.run, error_class=told.error_class, message=told.message
            )
            raise
        self._started = True
        run_id = str(query.runId)
        around.telemetry.query_started(
            query=entry.query, run=entry.run, spark_run_id=run_id, jquery=query._jsq
        )
        self._change(spark_run_id=run_id, spark_query_id=str(query.id), started_at=now())
        return query

    def _look_at_topics(self, frame: Any, session: Any, checkpoint: Checkpoint) -> None:
        """Say which topics it reads; raise where one is not what its checkpoint has read."""
        seen = topics.check(
            frame,
            remembered=self.entry.topic_ids,
            read=sorted(checkpoint.kafka_topics()),
            jvm=session._jvm,
        )
        self._change(topic_ids=seen.ids)
        for warning in seen.warnings:
            self._around.board.warn(self.entry.run, warning)

    def _epochs(self, query: Any, checkpoint: Checkpoint, before: int | None) -> Epochs | None:
        """Return what reports a continuous query instead of Spark; None for other triggers."""
        spec = self.entry.spec
        if spec.get("trigger", {}).get("kind") != "continuous":
            return None
        named = Named(
            query_id=str(query.id),
            run_id=str(query.runId),
            name=self.entry.name,
            source=", ".join(str(source["name"]) for source in spec.get("sources", ())),
            sink=str((spec.get("sink") or {}).get("format", "")),
        )
        tell = self._around.telemetry.epoch_committed
        return Epochs(checkpoint, named, before=before, tell=tell)

    # --- while it runs ----------------------------------------------------------------

    def _watch(self, jquery: Any, life: Life) -> None:
        """Return once the query is not active any more."""
        stop_again = 0.0
        draining_from: int | None = None
        while self._active(jquery):
            self._note(life)
            self._look_at_producer()
            asked = self._want_now()
            if asked is Want.DRAIN and draining_from is None:
                draining_from = -1 if life.last_batch is None else life.last_batch
            drained = asked is Want.DRAIN and self._is_drained(jquery, life, draining_from)
            if (asked is Want.STOP or drained) and time.monotonic() >= stop_again:
                self._stop(jquery)
                stop_again = time.monotonic() + STOP_AGAIN_S
                continue
            self._news.wait(DRAIN_TICK_S if asked is Want.DRAIN else TICK_S)
            self._news.clear()

    def _look_at_producer(self) -> None:
        """Say that the sink's producer is splitting batches, and who shares it."""
        if not self._writes_kafka or time.monotonic() < self._producer_at:
            return
        self._producer_at = time.monotonic() + PRODUCER_EVERY_S
        before, self._splits = (
            self._splits,
            producers.splits(self._around.spark.sparkContext._gateway),
        )
        if self._splits > before:
            others = self._around.producers.sharing(self.entry.run)
            self._around.board.warn(self.entry.run, producers.waits(list(others.values())))

    def _name_producer(self, error: RunError) -> RunError:
        """Name a batch that the broker refuses as too large, here and to those it held up."""
        if not self._writes_kafka:
            return error
        around, others = self._around, self._around.producers.sharing(self.entry.run)
        split = producers.splits(around.spark.sparkContext._gateway) - self._splits_before
        found = producers.named(error, split=split, others=list(others.values()))
        if found is not error:
            for other in others:
                around.board.warn(other, producers.held_up(self.entry.name))
        return found

    def _want_now(self) -> Want:
        with self._guard:
            passed = self._deadline is not None and datetime.now(UTC) >= self._deadline
            if self._asked is Want.DRAIN and passed:
                return Want.STOP
            return self._asked

    def _is_drained(self, jquery: Any, life: Life, before: int | None) -> bool:
        """Whether no batch is in flight, or the one that was has committed (trap 30)."""
        if not jquery.status().isTriggerActive():
            return True
        committed = life.last_batch
        return before is not None and committed is not None and committed > before

    def _stop(self, jquery: Any) -> None:
        try:
            jquery.stop()
        except Exception as error:
            if self._is_jvm_gone(error):
                raise _JvmGone from error
            # Spark joined the query's thread for spark.sql.streaming.stopTimeout in vain.
            logger.warning("stop of run %s hangs: %s", self.entry.run, type(error).__name__)

    def _note(self, life: Life) -> None:
        changes = life.look()
        proven = "first_commit_at" in changes or "first_idle_at" in changes
        with self._guard:
            if proven and self._asked is Want.RUN and not self._over:
                changes["state"] = RunState.RUNNING
            if changes:
                self._change(**changes)

    # --- the end ----------------------------------------------------------------------

    def _settle(self, jquery: Any, life: Life, held: Held) -> None:
        """Free the checkpoint, then say how the run ended."""
        entry, around = self.entry, self._around
        self._stop(jquery)  # returns once the query's thread is gone
        self._note(life)
        run_id = str(jquery.runId().toString())
        around.telemetry.query_ended(
            query=entry.query, run=entry.run, spark_run_id=run_id, jquery=jquery
        )
        found = jquery.exception()
        failure = None
        if found.isDefined():
            self._blame_no_query_for_a_stopped_spark()
            failure = self._name_producer(self._failure(found.get(), run_id))
        changes = life.at_failure() if failure is not None else {}
        around.locks.release(held)
        if self._refusal is not None:
            self._finish(RunState.REFUSED, error=self._refusal)
        elif failure is None:
            self._finish(RunState.ENDED)
        elif self._asked is not Want.RUN:
            # A stop in the middle of a batch is no failure, whatever it tears on its way.
            warning = f"ended with an error while stopping: {failure.root_cause}"
            self._finish(RunState.ENDED, warnings=(warning,))
        else:
            error = replace(failure, unknown_batch=changes.get("failed_batch") is None)
            self._finish(RunState.FAILED, error=error, **changes)

    def _blame_no_query_for_a_stopped_spark(self) -> None:
        """Raise where Spark itself was stopped (a SIGTERM to the JVM, users' `spark.stop()`).

        Its queries then fail with whatever they meet; it is the driver that has ended.
        """
        around = self._around
        if around.spark.sparkContext._jsc.sc().isStopped():
            around.spark_stopped.set()
            around.board.call()
            raise _JvmGone

    def _failure(self, throwable: Any, run_id: str) -> RunError:
        error = from_java(throwable, self._around.references.mask)
        if error.error_class in ("", "STREAM_FAILED"):
            body = self._around.telemetry.terminated(run_id, TERMINATED_WAIT_S) or {}
            told = body.get("errorClassOnException") or error.error_class
            return replace(error, error_class=told)
        return error

    def _finish(self, state: RunState, **changes: Any) -> None:
        with self._guard:
            if self._over:
                return
            self._over = True
            self._around.board.run(self.entry.run, state=state, ended_at=now(), **changes)

    def _change(self, **changes: Any) -> None:
        if not self._over:
            self._around.board.run(self.entry.run, **changes)

    # --- the JVM ----------------------------------------------------------------------

    def _active(self, jquery: Any) -> bool:
        try:
            return bool(jquery.isActive())
        except Exception as error:
            if self._is_jvm_gone(error):
                raise _JvmGone from error
            raise

    def _is_jvm_gone(self, error: BaseException) -> bool:
        """Tell a dead JVM from a failed call; the main loop sees its end by event."""
        if isinstance(error, StepFailed):
            error = error.cause
        broken = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
        if broken or isinstance(error, ConnectionError | EOFError):
            return self._around.jvm_gone.wait(JVM_NEWS_S)
        return self._around.jvm_gone.is_set()
