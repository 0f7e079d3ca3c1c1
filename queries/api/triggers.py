"""A query's trigger over REST: advice, waits for cores, async progress and calls, thread dumps."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rest_framework import serializers

from listeners.models import Event
from queries.api.base import ApiView
from queries.api.bodies import Body, described, serializer_for
from queries.api.methods import Nothing, accepts, answers, whole, whole_number
from queries.api.schema import QuerySpecField
from queries.domain.async_calls import AsyncOperator, Bound, OperatorAdvice
from queries.domain.errors import NotAllowed
from queries.domain.triggers.advice import Suggestion, TriggerAdvice
from queries.domain.triggers.batch_cost import Expected
from queries.domain.triggers.cores import Starved, TaskShare
from queries.domain.triggers.limits import TriggerFit
from queries.domain.triggers.slow_batches import BatchCause, CauseShare
from queries.models.history import Operation
from queries.roles import DEFINE, OPERATE
from queries.selectors.definitions import definitions
from queries.selectors.query_lines import query_line
from queries.selectors.supervision.applications import application_detail
from queries.selectors.triggers.advice import (
    Dumps,
    Explained,
    QueryAdvice,
    async_operators,
    query_advice,
    slow_batches,
    thread_dumps,
    trigger_note,
)
from queries.selectors.triggers.cores import starved_queries, task_shares
from queries.selectors.triggers.replays import Exposure, exposure
from queries.services.triggers import request_async_off, request_dump


@described
class CostBody(Body):
    """Cost of a batch: `fixed + per row × rows`, with 95 % confidence limits.

    scatter_ms: Median distance of the batches from the fitted line.
    least_rows: The smallest number of rows in a measured batch.
    """

    fixed_ms = serializers.FloatField()
    fixed_low_ms = serializers.FloatField()
    fixed_high_ms = serializers.FloatField()
    per_row_ms = serializers.FloatField()
    per_row_low_ms = serializers.FloatField()
    per_row_high_ms = serializers.FloatField()
    scatter_ms = serializers.FloatField()
    least_rows = serializers.IntegerField()
    most_rows = serializers.IntegerField()


@serializer_for(Expected, "interval_ms period_ms latency_ms low_ms high_ms busy throughput")
class ExpectedBody(Body):
    """The model's figures for one interval.

    interval_ms: 0 means as fast as possible.
    period_ms: Null if rows accumulate.
    latency_ms: Average time from a row's arrival to the end of its batch.
    high_ms: Null if there is no upper limit.
    busy: Share of time spent in batches.
    throughput: Maximum rows/s at this interval; null: unbounded.
    """


@serializer_for(Suggestion, "key title brings costs doubts spec")
class SuggestionBody(Body):
    """A suggested change. Reading it changes nothing.

    doubts: Questions that only a preflight can answer.
    spec: The definition with the change applied; PUT it to save it.
    """

    key = serializers.ChoiceField(["interval", "async_progress", "real_time"])
    spec = QuerySpecField()


@serializer_for(TriggerFit, "key name means=costs standing reasons chosen")
class LimitBody(Body):
    """Whether one kind of trigger supports the query.

    chosen: Whether the definition uses it.
    """


@serializer_for(CauseShare, "cause ms says=text")
class SlowCauseBody(Body):
    """One cause of a slow batch.

    ms: Its part of the batch.
    """

    cause = serializers.ChoiceField([one.value for one in BatchCause])


@serializer_for(Explained, "batch run at took_ms rows says=diagnosis.says causes")
class SlowBatchBody(Body):
    """A slow batch of the last day, and why it was slow.

    at: When its trigger started. says: The reason in one sentence; it also notes missing stage
    data. causes: The largest causes, largest first.
    """

    causes = SlowCauseBody(many=True)


@dataclass(frozen=True, slots=True)
class AdvisedTrigger:
    """The advice on a query's trigger."""

    found: QueryAdvice
    outgrown: str
    slow_batches: list[Explained]

    @property
    def says(self) -> TriggerAdvice:
        """Return the advice."""
        return self.found.advice

    @property
    def cost(self) -> dict[str, Any] | None:
        """Return the cost of a batch, or None if it cannot be calculated."""
        if (cost := self.says.cost) is None:
            return None
        low, high = cost.band(0)
        per_row = [line.per_row_ms for line in (cost.line, *cost.edges)]
        return {
            "fixed_ms": cost.line.fixed_ms,
            "fixed_low_ms": low,
            "fixed_high_ms": high,
            "per_row_ms": cost.line.per_row_ms,
            "per_row_low_ms": min(per_row),
            "per_row_high_ms": max(per_row),
            "scatter_ms": cost.scatter_ms,
            "least_rows": cost.least_rows,
            "most_rows": cost.most_rows,
        }


@serializer_for(
    AdvisedTrigger,
    "found.revision measured_revision=found.measured found.measured_at says.batches says.untold "
    "cost rows_per_second=says.rate checkpoint_tax=says.tax says.log_cost says.now says.curve "
    "says.overload outgrown says.suggestions triggers=says.limits slow_batches",
)
class AdviceBody(Body):
    """Advice on a query's trigger, from its own measured batches.

    revision: The newest revision, which suggestions change. measured_revision: The revision whose
    batches were measured; null if none has run. measured_at: When the newest measured batch began.
    batches: Number of measured batches. untold: Why the cost cannot be calculated from the batches;
    otherwise empty. rows_per_second: Rows read per second. checkpoint_tax: Share of trigger time
    spent in walCommit and commitOffsets. log_cost: What would help if log entries on remote storage
    are expensive; otherwise empty. now: The figures at the query's own interval. overload: Why no
    interval, or not the current one, keeps up. outgrown: Why it has too few cores for its
    partitions. slow_batches: The slowest batches of the last day, slowest first, at most 5.
    """

    cost = CostBody(allow_null=True)
    slow_batches = SlowBatchBody(many=True)


class QueryAdviceView(ApiView):
    """Advice on a query's trigger."""

    @answers("get_query_advice", AdviceBody)
    def get(self, name: str) -> AdvisedTrigger:
        """Return advice on the trigger from a query's measured batches, with suggestions."""
        line = query_line(name, now=self.now)
        advice = query_advice(line)
        if advice is None:
            raise NotAllowed(
                f"The definition of {name} can no longer be read.", way_out="PUT a new definition."
            )
        slow = slow_batches(line.query.pk, now=self.now)
        return AdvisedTrigger(advice, trigger_note(line), slow)


@serializer_for(
    Exposure,
    "interval_ms by_default kept kept_at missing newest running batches rows rows_in_flight "
    "rows_from seconds unreadable seen_at",
)
class ExposureBody(Body):
    """The replay of a query after a crash now; all null if every batch is saved.

    interval_ms: Minimum time between saves of the offsets.
    by_default: True if Spark enables it by default (real-time mode without state).
    kept: The batch after which a start would continue; null for the beginning.
    missing: The batch whose offsets Spark would not find if tracking were turned off.
    newest: The newest executed batch.
    running: The batch that is running now.
    batches: Number of executed or running batches that would be replayed.
    rows: Number of rows in those batches.
    rows_in_flight: Those rows that the running batch may have written; null if unknown.
    rows_from: How the executed batches' rows were counted.
    seconds: Seconds of work since the last saved batch.
    unreadable: "Unknown, because …": why the checkpoint's logs are unknown; else empty.
    seen_at: When the driver read the checkpoint's logs; null if they were read for this answer.
    """

    rows_from = serializers.ChoiceField(["offsets", "progress", ""])


class QueryExposureBody(Body):
    """Whether a query uses async progress tracking, and the resulting replay after a crash."""

    async_progress = serializers.BooleanField()
    exposure = ExposureBody(allow_null=True)


class QueryExposureView(ApiView):
    """What a query would replay after a crash now."""

    @answers("get_query_exposure", QueryExposureBody)
    def get(self, name: str) -> dict[str, Any]:
        """Return the replay of a query with async progress tracking after a crash now."""
        replay = exposure(definitions.query(name), now=self.now)
        return {"async_progress": replay is not None, "exposure": replay}


class QueryAsyncOffView(ApiView):
    """The safe way to turn async progress tracking off."""

    @accepts("switch_async_progress_off", role=DEFINE)
    def post(self, name: str) -> Operation:
        """Turn async progress tracking off in steps; also recovers a query that failed on a gap."""
        return request_async_off(query=definitions.query(name), **self.author)


@serializer_for(Event, "run at quiet_s threads heap")
class ThreadDumpBody(Body):
    """The activity of a query's driver JVM at one moment.

    run: The run for which it was taken.
    at: When it was taken.
    quiet_s: Seconds since the run's last sign of progress.
    threads: The threads, as the JVM prints them.
    heap: The classes that take most of the heap.
    """

    quiet_s = serializers.IntegerField(source="body.quiet_s")
    threads = serializers.CharField(source="body.threads")
    heap = serializers.CharField(source="body.heap")


@serializer_for(Dumps, "newest asked_at overdue")
class ThreadDumpsBody(Body):
    """The newest thread dump of the last day, and whether another one has been requested.

    newest: Null if none was taken. asked_at: When the pending dump was requested; null if none is
    pending. overdue: Whether the request has been unanswered for more than a minute.
    """

    newest = ThreadDumpBody(allow_null=True)


class QueryThreadDumpView(ApiView):
    """Thread dumps of the driver that runs a query."""

    @answers("get_query_thread_dump", ThreadDumpsBody)
    def get(self, name: str) -> Dumps:
        """Return the newest thread dump: taken on request, or because the query hung."""
        return thread_dumps(definitions.query(name), now=self.now)

    @answers("request_query_thread_dump", ThreadDumpsBody, role=OPERATE, form=Nothing)
    def post(self, name: str) -> Dumps:
        """Have the driver take a thread dump with its next heartbeat; read it with GET."""
        query = definitions.query(name)
        request_dump(query=query, **self.by)
        return thread_dumps(query, now=self.now)


_LONGEST_H = 7 * 24
_HOURS = whole("hours", 1, low=1, high=_LONGEST_H, about="Length of the range, until now.")


@serializer_for(TaskShare, "query pool covered_s=since task_s share waited_s waited_for")
class TaskShareBody(Body):
    """A query's use of its application's cores.

    pool: Empty for Spark's own pool, `default`.
    covered_s: Seconds of the range in which it ran.
    task_s: Its tasks' run time, totalled over all cores.
    share: Of the application's total task time, 0 to 1.
    waited_s: Seconds in which its stages were ready but none of their tasks ran.
    waited_for: Those seconds, by the query whose tasks ran instead.
    """

    waited_for = serializers.DictField(child=serializers.FloatField())


@serializer_for(Starved, "query by says change")
class StarvedBody(Body):
    """A query that waited for others for 10 % of the time or more.

    by: The query that it waited for longest.
    change: The change to the pools that would fix this.
    """


@dataclass(frozen=True, slots=True)
class Waits:
    """Task time and waits over a time range."""

    hours: int
    queries: list[TaskShare]
    starved: list[Starved]


@serializer_for(Waits, "hours queries starved")
class WaitsBody(Body):
    """Task time and waits for an application's queries in recent hours."""

    queries = TaskShareBody(many=True)
    starved = StarvedBody(many=True)


class ApplicationWaitsView(ApiView):
    """Task time and waits of one application."""

    @answers("get_application_waits", WaitsBody, parameters=[_HOURS])
    def get(self, name: str) -> Waits:
        """Return each query's use of an application's cores, and the queries that it waited for."""
        detail = application_detail(name)
        hours = whole_number(self.request, "hours", 1, low=1, high=_LONGEST_H)
        shares = task_shares(
            detail.application, since=self.now - timedelta(hours=hours), until=self.now
        )
        words = "the last hour" if hours == 1 else f"the last {hours} hours"
        return Waits(hours, shares, starved_queries(detail, shares, span=words))


@dataclass(frozen=True, slots=True)
class AdvisedOperator:
    """An operator and the advice for it."""

    operator: AsyncOperator
    advice: OperatorAdvice

    @property
    def bound_name(self) -> str:
        """Return the name of the factor that limits the operator."""
        return self.advice.bound.name.lower()


@serializer_for(
    AdvisedOperator,
    "operator.name operator.until operator.batches operator.calls operator.retries "
    "failed=operator.errors operator.timeouts operator.dead_letters "
    "calls_per_second=operator.rate possible_per_second=operator.possible "
    "latency_ms=operator.percentiles_ms operator.waited_ms operator.allowed operator.used "
    "operator.cap operator.keys operator.cpu operator.tasks bound advice.evidence advice.advice "
    "advice.number",
)
class AsyncOperatorBody(Body):
    """An async operator, with figures from its newest batches that made calls.

    until: When the newest batch covered by the figures began.
    batches: Number of batches that the figures cover.
    calls: Finished attempts, successful or not.
    retries: Attempts after the first.
    failed: Failed attempts.
    timeouts: Failed attempts that timed out.
    dead_letters: Rows that the operator gave up on.
    calls_per_second: Total over all tasks in a batch.
    possible_per_second: Rate possible at this latency with all allowed calls in flight.
    latency_ms: Latency of calls: p50, p95, p99.
    waited_ms: Time spent waiting for a key: p50, p95, p99.
    allowed: Mean number of calls allowed in flight per task.
    used: Mean number of calls actually in flight per task.
    cap: The limiter's cap.
    keys: Mean number of distinct keys held per task.
    cpu: Share of a core that a task's Python worker uses.
    tasks: Mean number of tasks per batch.
    number: The suggested value, if any.
    """

    bound = serializers.ChoiceField([one.name.lower() for one in Bound], source="bound_name")


class QueryAsyncBody(Body):
    """A query's async operators; empty if it has none, or none of them has made a call yet."""

    operators = AsyncOperatorBody(many=True)


class QueryAsyncView(ApiView):
    """A query's async operators."""

    @answers("get_query_async", QueryAsyncBody)
    def get(self, name: str) -> dict[str, Any]:
        """Return the figures for a query's async operators, their bottlenecks, and advice."""
        return {
            "operators": [
                AdvisedOperator(operator, advice)
                for operator, advice in async_operators(definitions.query(name).pk)
            ]
        }
