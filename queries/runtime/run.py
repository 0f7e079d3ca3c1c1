"""Execute one run of one query, from lock to end, in its own thread.

The outcome of a run depends on what this thread requested and on what the query itself reports
(`isActive`, `exception()`); Spark's events may be dropped, so they only add details.
`queries.domain.restart` decides whether a run has ended and whether its checkpoint can be released,
because `isActive` is false as soon as a stop begins. Nothing that happens to one run affects
another.
"""

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from listeners.spark.telemetry import Telemetry
from queries import host_pressure
from queries.domain.definitions.allowed_paths import AllowedPaths
from queries.domain.failures.error_text import left_out
from queries.domain.protocol import AssignmentEntry, Hangs, RunError, RunState, RunStatus, Want
from queries.domain.restart import RunFacts, RunVerdict, judge
from queries.runtime import build, kafka
from queries.runtime.checkpoints.locks import CheckpointLock, Locks
from queries.runtime.checkpoints.logs import CheckpointReader, LogReports
from queries.runtime.checkpoints.owners import CheckpointRefused
from queries.runtime.checkpoints.s3_names import refuse_s3_names
from queries.runtime.code.stream_writers import Callbacks
from queries.runtime.failures.error_capture import StepFailed, from_python
from queries.runtime.failures.run_failures import (
    Read,
    RunFailure,
    checkpoint_refused,
    none,
    of_query,
    of_takeover,
    start_timed_out,
)
from queries.runtime.kafka import Producers, SinkProducer, TopicWatch
from queries.runtime.liveness import ProgressTracker, StartProgress, of_continuous
from queries.runtime.spark_session import Sessions
from queries.runtime.status_report import StatusFile, now
from queries.secret_references import References

logger = logging.getLogger(__name__)

TICK_S = 0.2  # a failure shows up in isActive() within this time
FIRST_TICK_S = 0.05  # until its first commit, or first idle trigger: somebody may be waiting
DRAIN_TICK_S = 0.02  # the next batch begins soon after a commit
STOP_AGAIN_S = 10  # after a stop() that timed out
END_S = 10  # for the query's thread to end after the query has
JVM_NEWS_S = 2  # for the main loop to notice that the JVM is gone


@dataclass(frozen=True, slots=True)
class DriverContext:
    """The objects that all runs of a driver share."""

    spark: Any
    sessions: Sessions
    locks: Locks
    board: StatusFile
    telemetry: Telemetry
    references: References
    jvm_ended: threading.Event
    spark_stopped: threading.Event  # something stopped Spark while its queries were running: exit
    start_deadline_s: float | None  # for a start to advance; None: not checked
    start_max_s: float | None = None  # from the assignment to Started; None: not checked
    roots: AllowedPaths | None = None  # where queries may read and write
    producers: Producers = field(default_factory=Producers)


class NotAllowedToStart(Exception):
    """The definition needs something that an admin has not allowed; the message has the remedy."""


class _JvmEnded(Exception):
    """The JVM has died: the driver ends and the shim reports it; the query has not failed."""


#: Spark's message for a query that has not ended although its run has.
_STILL_ACTIVE = "a query with that name is already active"


class QueryRun:
    """A run of a query, in its own thread."""

    def __init__(self, entry: AssignmentEntry, context: DriverContext) -> None:
        self.entry = entry
        self._context = context
        self._guard = threading.Lock()
        self._wanted = Want.RUN
        self._deadline: datetime | None = None
        self._news = threading.Event()  # something was requested
        self._is_fenced = False  # a later start on the checkpoint, elsewhere, ends this driver
        self._over = False  # the board shows the run's end; nothing may change it any more
        self._refusal: RunError | None = None
        self._start_progress = StartProgress(lambda: self._change(advanced_at=now()))
        self._jquery: Any = None  # the query, once started
        self._building = True  # until start() has returned or failed
        self._stop_timed_out = False
        self._callbacks = Callbacks(returned=self._news.set)
        self._producer = SinkProducer(context.producers, entry.run, entry.name, context.board.warn)
        self._topics: TopicWatch | None = None
        self._reports: LogReports | None = None  # of a checkpoint that is not local
        self._thread = threading.Thread(target=self._run, name=f"run-{entry.run}", daemon=True)
        context.references.learn(entry.spec)
        context.board.add(RunStatus(entry.run, entry.query, RunState.STARTING))
        self._thread.start()

    # --- from the main loop -----------------------------------------------------------

    @property
    def working(self) -> bool:
        """Return whether the thread is still doing anything, including a hanging start."""
        return self._thread.is_alive()

    def request_end(self, want: Want, deadline: str | None = None) -> None:
        """Request the run's end. A STOP is never revoked; a later deadline replaces an earlier."""
        with self._guard:
            if self._over or want is Want.RUN:
                return
            self._deadline = datetime.fromisoformat(deadline) if deadline else None
            if self._wanted in (want, Want.STOP):
                return
            self._wanted = want
            self._change(state=RunState.STOPPING, asked_for=want)
        self._news.set()

    def lock_lost(self, error: RunError) -> None:
        """Stop immediately: another process, or an unknown one, has locked the checkpoint."""
        self._refusal = error
        self.request_end(Want.STOP)

    def check_start(self) -> None:
        """Report a start that is stuck as a failure; if it succeeds later, stop the query.

        A start is stuck if it does not advance within its limit, or takes its maximum.

        The query being built keeps its lock, because its thread may still start it.
        """
        limit, longest = self._context.start_deadline_s, self._context.start_max_s
        if limit is None or not self._building or self._over:
            return
        progress = self._start_progress
        progress.look(self._thread.native_id)
        stuck_s, took_s = (
            time.monotonic() - at for at in (progress.advanced_at, progress.began_at)
        )
        too_long = longest is not None and took_s > longest
        if stuck_s <= limit and not too_long:
            return
        verdict = judge(RunFacts(building=True, asked=self._wanted, overdue=True))
        if verdict.outcome is not None:
            problem = f"was not started, and its start did not advance for {limit:g} s"
            if too_long:
                problem = f"was not started within {longest:g} s"
            pressure = host_pressure.read_pressure()
            busy = f"This host was busy: {pressure.figure}." if pressure.is_high else ""
            mask = self._context.references.mask
            error = start_timed_out(self._thread, problem, busy, mask)
            self._finish(verdict.outcome, error=error, hangs=verdict.hangs)
        with self._guard:
            self._wanted = Want.STOP
        self._news.set()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        self._thread.join(timeout_s)

    # --- the thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._live()
        except _JvmEnded:
            logger.info("%s ends with its JVM", self.entry.called)
        except BaseException as error:  # the thread's top level: whatever it was, the run has ended
            if self._has_jvm_ended(error):
                return
            logger.error("%s failed: %s", self.entry.called, type(error).__name__)
            self._finish(RunState.FAILED, error=from_python(error, self._context.references.mask))

    def _live(self) -> None:
        entry, context = self.entry, self._context
        try:
            lock = self._take()
        except CheckpointRefused as refused:
            self._finish(RunState.REFUSED, error=self._named(refused))
            return
        self._is_fenced = lock.watch is not None
        read_failure: Read = none
        try:
            if lock.warning:
                self._change(warnings=(lock.warning,))
            checkpoint = CheckpointReader(entry.checkpoint, context.spark)
            self._start_progress.step()
            self._wait_for_former_owner(lock)
            before = self._before(checkpoint)
            query = self._start(checkpoint)
            if query is not None:
                epochs = of_continuous(
                    query,
                    entry.spec,
                    entry.name,
                    checkpoint,
                    before=before,
                    telemetry=context.telemetry,
                )
                if not checkpoint.local:
                    self._reports = LogReports(
                        checkpoint,
                        entry.checkpoint,
                        context.board.directory,
                        errors=context.board.each,
                        mask=context.references.mask_within,
                    )
                tracker = ProgressTracker(query._jsq, checkpoint, before, epochs, self._reports)
                read_failure = partial(self._failure_of, query._jsq, tracker)
                self._watch(query._jsq, tracker)
        except _JvmEnded:  # the lock is lost with it, and with this Python process
            raise
        except CheckpointRefused as refused:
            self._refusal = self._named(refused)
        except BaseException as raised:  # sys.exit() in users' code must not end this thread
            if self._has_jvm_ended(raised):
                raise _JvmEnded from raised
            logger.error("%s failed: %s", entry.called, type(raised).__name__)
            run_error = from_python(raised, context.references.mask)
            read_failure = partial(RunFailure, run_error)
        self._building = False
        self._end(lock, read_failure)

    def _take(self) -> CheckpointLock:
        """Lock the checkpoint; raise `CheckpointRefused` if it is not available."""
        entry = self.entry
        return self._context.locks.take(
            entry.checkpoint, run=entry.run, epoch=entry.epoch, takeover=entry.takeover
        )

    def _wait_for_former_owner(self, lock: CheckpointLock) -> None:
        """Wait until a former owner of the checkpoint elsewhere must have halted."""
        if not lock.free_at:
            return
        self._start_progress.begin_at(lock.free_at)  # the time to start in begins then
        self._context.locks.wait_for_former_owner(
            lock,
            wanted=lambda: self._wanted is Want.RUN,
            report_wait=lambda until: self._change(waits_until=until),
        )

    def _before(self, checkpoint: CheckpointReader) -> int | None:
        """Return the newest batch that was committed before this run."""
        return checkpoint.last_commit()

    def _named(self, refused: CheckpointRefused) -> RunError:
        """Return why the checkpoint is not available, with details of the run that holds it."""
        holder = self._context.board.read(refused.run) if refused.run is not None else None
        return checkpoint_refused(refused.error, holder, self.entry.checkpoint)

    def _start(self, checkpoint: CheckpointReader) -> Any:
        """Return the started query; None if the run's end was requested before it started."""
        entry, context = self.entry, self._context
        if self._wanted is not Want.RUN:
            return None
        try:
            if entry.refused:
                refused = NotAllowedToStart(entry.refused)
                raise StepFailed("definition", refused, error_class=build.CONFIGURATION)
            refuse_s3_names(context.spark, entry.spec, entry.checkpoint)
            session = context.sessions.open(entry.query, entry.spec)
            self._start_progress.step()
            self._start_progress.learn_jvm_thread(session._jvm)
            # The thread that calls start() reads it, and the query's own thread inherits it.
            session.sparkContext.setLocalProperty("spark.scheduler.pool", entry.pool or None)
            with kafka.accepting(entry.accepts_loss):
                writer = build.writer(
                    session,
                    entry.spec,
                    name=entry.name,
                    checkpoint=entry.checkpoint,
                    references=context.references,
                    roots=context.roots,
                    callbacks=self._callbacks,
                    warn=partial(context.board.warn, entry.run),
                )
            self._start_progress.step()
            if self._wanted is not Want.RUN:
                return None
            self._look_at_topics(writer._df, session, checkpoint)
            self._start_progress.step()
            self._producer.begin(entry.spec, session.sparkContext)
            query = build.start(writer)
        except BaseException as error:
            if self._has_jvm_ended(error):
                raise _JvmEnded from error
            run_error = from_python(error, context.references.mask)
            report = partial(context.telemetry.start_failed, query=entry.query, run=entry.run)
            left_out(
                partial(report, error_class=run_error.error_class, message=run_error.message), None
            )
            if _STILL_ACTIVE in run_error.message:
                raise context.locks.still_active(run_error.root_cause) from error
            raise
        self._jquery = query._jsq
        self._building = False
        if self._topics is not None:
            self._topics.begin()
        run_id = str(query.runId)
        context.telemetry.query_started(
            query=entry.query, run=entry.run, spark_run_id=run_id, jquery=query._jsq
        )
        self._change(spark_run_id=run_id, spark_query_id=str(query.id), started_at=now())
        return query

    def _look_at_topics(self, frame: Any, session: Any, checkpoint: CheckpointReader) -> None:
        """Report the query's topics; raise if one is not the topic that its checkpoint has read."""
        topic_ids = kafka.check(
            frame,
            remembered_ids=self.entry.topic_ids,
            read=sorted(checkpoint.kafka_topics()),
            jvm=session._jvm,
        )
        self._change(topic_ids=topic_ids.ids)
        warn = partial(self._context.board.warn, self.entry.run)
        for warning in topic_ids.warnings:
            warn(warning)
        if self.entry.spec.get("kind") == "python":
            self._topics = TopicWatch(
                kafka.sources_of(frame),
                topic_ids.ids,
                read=lambda: sorted(checkpoint.kafka_topics()),
                jvm=session._jvm,
                report_ids=lambda ids: self._change(topic_ids=ids),
                warn=warn,
            )

    # --- while it runs ----------------------------------------------------------------

    def _watch(self, jquery: Any, tracker: ProgressTracker) -> None:
        """Return once the query is no longer active."""
        stop_again = 0.0
        draining_from: int | None = None
        while self._active(jquery):
            self._note(tracker)
            self._producer.look()
            want = self._want_now()
            if want is Want.DRAIN and draining_from is None:
                draining_from = -1 if tracker.last_batch is None else tracker.last_batch
            drained = want is Want.DRAIN and self._is_drained(jquery, tracker, draining_from)
            if (want is Want.STOP or drained) and time.monotonic() >= stop_again:
                self._stop(jquery)
                stop_again = time.monotonic() + STOP_AGAIN_S
                continue
            tick = TICK_S if tracker.proven else FIRST_TICK_S
            self._news.wait(DRAIN_TICK_S if want is Want.DRAIN else tick)
            self._news.clear()

    def _want_now(self) -> Want:
        with self._guard:
            passed = self._deadline is not None and datetime.now(UTC) >= self._deadline
            if self._wanted is Want.DRAIN and passed:
                return Want.STOP
            return self._wanted

    def _is_drained(self, jquery: Any, tracker: ProgressTracker, before: int | None) -> bool:
        """Return whether no batch is in flight, or the one in flight has committed (trap 30).

        Spark offers no stop between batches: one that begins between this look and the stop is
        interrupted, and the next run repeats it.
        """
        if not jquery.status().isTriggerActive():
            return True
        committed = tracker.last_batch
        return before is not None and committed is not None and committed > before

    def _stop(self, jquery: Any) -> None:
        try:
            jquery.stop()
        except Exception as error:
            if self._has_jvm_ended(error):
                raise _JvmEnded from error
            # Spark waited in vain for the query's thread for spark.sql.streaming.stopTimeout.
            self._stop_timed_out = True
            logger.warning(
                ("the stop of %s is hanging: %s"), self.entry.called, type(error).__name__
            )

    def _note(self, tracker: ProgressTracker) -> None:
        changes = tracker.look()
        proven = "first_commit_at" in changes or "first_idle_at" in changes
        with self._guard:
            if proven and self._wanted is Want.RUN and not self._over:
                changes["state"] = RunState.RUNNING
            if changes:
                self._change(**changes)

    # --- the end ----------------------------------------------------------------------

    def _end(self, lock: CheckpointLock, read_failure: Read) -> None:
        """Wait for the run's end, release its checkpoint, then report how it ended."""
        context, jquery = self._context, self._jquery
        if jquery is not None:
            self._outlive(jquery, read_failure)
        try:  # nothing is left of the run: whatever else fails, its lock is released
            if jquery is not None:
                left_out(partial(self._read_last_progress, jquery), None)
            if self._reports is not None:
                self._reports.end()
            failure = read_failure()
        except BaseException:
            context.locks.release(lock)
            self._show(Hangs.NOTHING)
            raise
        finally:
            self._producer.end()
            if self._topics is not None:
                self._topics.end()
        context.locks.release(lock)
        self._report_outcome(judge(self._facts(failed=failure is not None)), failure)
        self._show(Hangs.NOTHING)  # of a run whose outcome was known before its end

    def _read_last_progress(self, jquery: Any) -> None:
        """Tell telemetry to read the query's recent progress once more."""
        self._context.telemetry.query_ended(
            query=self.entry.query,
            run=self.entry.run,
            spark_run_id=str(jquery.runId().toString()),
            jquery=jquery,
        )

    def _outlive(self, jquery: Any, failure: Read) -> None:
        """Return once no part of the run can write any longer; until then, report hangs."""
        began, stop_again = time.monotonic(), 0.0
        while True:
            late = self._stop_timed_out or time.monotonic() - began > END_S
            alive = self._is_thread_alive(jquery)
            verdict = judge(self._facts(thread_alive=alive, overdue=late))
            if verdict.release:
                return
            if verdict.hangs:
                self._report_hanging(verdict, failure)
            if alive and time.monotonic() >= stop_again:
                self._stop(jquery)  # returns when the query's thread is gone, or without success
                stop_again = time.monotonic() + STOP_AGAIN_S
                continue
            self._news.wait(TICK_S)
            self._news.clear()

    def _facts(self, **seen: Any) -> RunFacts:
        return RunFacts(
            building=self._building,
            callbacks_open=self._callbacks.open,
            asked=self._wanted,
            refused=self._refusal is not None,
            **seen,
        )

    def _report_hanging(self, verdict: RunVerdict, read_failure: Read) -> None:
        """Report the hanging parts and, if it is known, that the run has failed."""
        self._show(verdict.hangs)
        if self._over:
            return
        try:
            failure = read_failure()
        except _JvmEnded:
            raise
        except Exception as error:  # retried, because whatever hangs must be followed to its end
            logger.warning("%s: could not read its failure: %s", self.entry.called, error)
            return
        if failure is not None:
            facts = self._facts(thread_alive=True, failed=True, overdue=True)
            self._report_outcome(judge(facts), failure)

    def _report_outcome(self, verdict: RunVerdict, failure: RunFailure | None) -> None:
        hangs = verdict.hangs
        match verdict.outcome:
            case RunState.REFUSED:
                self._finish(RunState.REFUSED, error=self._refusal, hangs=hangs)
            case RunState.FAILED if failure is not None:
                self._finish(RunState.FAILED, error=failure.error, hangs=hangs, **failure.changes)
            case RunState.ENDED if failure is not None:
                # A stop in the middle of a batch is not a failure, whatever errors it causes.
                warning = f"ended with an error while stopping: {failure.error.root_cause}"
                self._finish(RunState.ENDED, warnings=(warning,), hangs=hangs)
            case RunState.ENDED:
                self._finish(RunState.ENDED, hangs=hangs)

    def _failure_of(self, jquery: Any, tracker: ProgressTracker) -> RunFailure | None:
        """Return the query's failure as Spark currently reports it; None if it has not failed."""
        left_out(partial(self._note, tracker), None)
        java_error = jquery.exception()
        if not java_error.isDefined():
            return None
        self._blame_no_query_for_a_stopped_spark()
        context, run_id = self._context, str(jquery.runId().toString())
        error = of_query(java_error.get(), run_id, context.telemetry, context.references.mask)
        error = left_out(lambda: self._producer.named(error), error)
        changes: dict[str, Any] = left_out(lambda: tracker.at_failure(), {})
        if self._is_fenced and left_out(lambda: tracker.last_batch, 0) is None:
            error = of_takeover(error)
        unknown = changes.get("failed_batch") is None
        return RunFailure(replace(error, unknown_batch=unknown), changes)

    def _blame_no_query_for_a_stopped_spark(self) -> None:
        """Raise if Spark itself was stopped (a SIGTERM to the JVM, `spark.stop()` in users' code).

        The queries then fail with arbitrary errors, although they are not the cause of the end.
        """
        context = self._context
        if context.spark.sparkContext._jsc.sc().isStopped():
            context.spark_stopped.set()
            context.board.notify()
            raise _JvmEnded

    def _finish(self, state: RunState, **changes: Any) -> None:
        with self._guard:
            if self._over:
                return
            self._over = True
            self._context.board.run(self.entry.run, state=state, ended_at=now(), **changes)

    def _show(self, hangs: Hangs) -> None:
        """Report which part of the run is hanging, even if the run already has an outcome."""
        with self._guard:
            status = self._context.board.read(self.entry.run)
            if status is None or status.hangs is hangs:
                return
            logger.warning("%s: now hanging: %r", self.entry.called, hangs.value)
            state = status.state if self._over else RunState.STOPPING
            self._context.board.run(self.entry.run, hangs=hangs, state=state)

    def _change(self, **changes: Any) -> None:
        if not self._over:
            self._context.board.run(self.entry.run, **changes)

    # --- the JVM ----------------------------------------------------------------------

    def _active(self, jquery: Any) -> bool:
        try:
            return bool(jquery.isActive())
        except Exception as error:
            if self._has_jvm_ended(error):
                raise _JvmEnded from error
            raise

    def _is_thread_alive(self, jquery: Any) -> bool:
        """Return whether Spark's thread for the query exists; unknown does not mean gone."""
        try:
            return bool(jquery.streamingQuery().queryExecutionThread().isAlive())
        except Exception as error:
            if self._has_jvm_ended(error):
                raise _JvmEnded from error
            logger.warning("could not find the thread of %s: %s", self.entry.called, error)
            return True

    def _has_jvm_ended(self, error: BaseException) -> bool:
        """Return whether the JVM is gone, as opposed to a failed call; wait a moment to know."""
        if isinstance(error, StepFailed):
            error = error.cause
        broken = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
        if broken or isinstance(error, ConnectionError | EOFError):
            return self._context.jvm_ended.wait(JVM_NEWS_S)
        return self._context.jvm_ended.is_set()
