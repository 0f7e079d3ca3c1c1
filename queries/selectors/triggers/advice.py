"""Advise on a query's trigger from its batches: slow ones with their reasons, and thread dumps."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Exists, OuterRef, Q

from headgate_ground.wire import EventKind
from listeners import selectors as heard
from listeners.models import Event, Progress, SlowBatch
from queries.domain import async_calls
from queries.domain.checkpoints.ownership import local_path
from queries.domain.definitions.spec import HOLDING_TRIGGERS, ApplicationSpec
from queries.domain.kafka.lag import kafka_offsets
from queries.domain.protocol import WarningCode
from queries.domain.states import RunOutcome
from queries.domain.triggers.advice import BatchSeen, TriggerAdvice, advise
from queries.domain.triggers.batch_cost import FILE_MANAGER, LogFiles
from queries.domain.triggers.cores import cores_of, outgrown
from queries.domain.triggers.limits import doubts
from queries.domain.triggers.slow_batches import (
    BatchCause,
    CauseShare,
    Diagnosis,
    diagnose,
    evidence_of,
)
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.selectors import visible
from queries.selectors.kafka.sources import kafka_sources
from queries.selectors.query_lines import QueryLine
from queries.selectors.triggers.cores import (
    cores_beside,
    ground_for,
    newest_application_spec,
    parsed_or_none,
    partitions_by_topic,
)

#: How far back the page looks, and an incident: an older batch does not explain the present.
SHOWN, RECENT = timedelta(days=1), timedelta(hours=1)
#: Rows of the table, and causes of each.
MOST, _LARGEST = 5, 4
#: Queries whose batches are read in one statement: databases limit its conditions.
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Explained:
    """A slow batch and the reason."""

    batch: int
    run: int
    at: datetime  # its trigger's start
    took_ms: int
    rows: int
    diagnosis: Diagnosis

    @property
    def causes(self) -> tuple[CauseShare, ...]:
        """Return the largest causes, largest first."""
        return self.diagnosis.causes[:_LARGEST]

    @property
    def is_skewed(self) -> bool:
        """Return whether few tasks had most of the rows."""
        return any(finding.cause is BatchCause.SKEW for finding in self.causes)


def slow_batches(query: int, *, now: datetime) -> list[Explained]:
    """Return the slowest batches of the last day, slowest first.

    The slowest batch of all is included if its driver sent no evidence on it.
    """
    evidence = SlowBatch.objects.filter(query=query, at__gt=now - SHOWN).order_by("-took_ms")
    bodies = {(slow_batch.run, slow_batch.batch): slow_batch.body for slow_batch in evidence[:MOST]}
    rows = Progress.objects.filter(query=query, at__gt=now - SHOWN)
    slowest = rows.order_by("-batch_duration_ms").values_list("pk", "batch_duration_ms").first()
    return _explained(bodies, slowest[0] if slowest and slowest[1] >= _LONG_MS else None)


#: A shorter batch without evidence is not worth a line.
_LONG_MS = 1_000


def why_slow(since: Mapping[int, datetime], *, now: datetime) -> dict[int, str]:
    """Return the sentence on the slowest batch of each query since it became slow.

    `since` is by query. An older batch does not explain what began after it, and a run's first
    batch does not count: it also loads code and state. The newest one would change an incident's
    wording every few seconds. Two database queries per 200 queries, and one more.
    """
    if not since:
        return {}
    before = Progress.objects.filter(run=OuterRef("run"), batch__lt=OuterRef("batch"))
    rows = SlowBatch.objects.filter(Exists(before), query__in=since, at__gt=now - RECENT)
    ordered = rows.order_by("took_ms", "-pk").values_list("query", "pk", "at")
    late_enough = {query: pk for query, pk, at in ordered if at >= since[query]}
    slowest = sorted(late_enough.values())  # of each query, the last row counts
    sentences: dict[int, str] = {}
    for start in range(0, len(slowest), _AT_ONCE):
        evidence = SlowBatch.objects.filter(pk__in=slowest[start : start + _AT_ONCE])
        bodies = {(slow_batch.run, slow_batch.batch): slow_batch.body for slow_batch in evidence}
        if not bodies:  # they have expired since
            continue
        batches = reduce(or_, (Q(run=run, batch=batch) for run, batch in bodies))
        for row in Progress.objects.filter(batches):
            sentences[row.query] = _explain_batch(row, bodies[row.run, row.batch]).diagnosis.says
    return sentences


def _explained(bodies: dict[tuple[int, int], object], other: int | None) -> list[Explained]:
    """Return the batches with their reasons; `other` is the key of one that may lack evidence."""
    runs, batches = {run for run, _ in bodies}, {batch for _, batch in bodies}
    rows = Progress.objects.filter(run__in=runs, batch__in=batches)
    rows_by_id = {row.pk: row for row in rows if (row.run, row.batch) in bodies}
    if other is not None and (row := Progress.objects.filter(pk=other).first()):
        rows_by_id[row.pk] = row
    slowest = sorted(rows_by_id.values(), key=lambda row: -row.batch_duration_ms)[:MOST]
    return [_explain_batch(row, bodies.get((row.run, row.batch))) for row in slowest]


def _explain_batch(row: Progress, body: object) -> Explained:
    evidence = evidence_of(row.body, body if isinstance(body, dict) else None)
    return Explained(
        row.batch, row.run, row.at, row.batch_duration_ms, row.num_input_rows, diagnose(evidence)
    )


#: Progress rows read: more than the fit needs, so that idle ones do not matter.
ROWS = 300
#: Progress events read for async operators: enough for the limiter to have moved.
ASYNC_ROWS = 200


@dataclass(frozen=True, slots=True)
class QueryAdvice:
    """The advice for a query, and the revisions on which it is based."""

    advice: TriggerAdvice
    revision: int  # newest, which suggestions change
    measured: int | None  # whose batches were measured; None: it has never run
    measured_at: datetime | None  # start of the newest of these batches; None: no batches


def query_advice(line: QueryLine) -> QueryAdvice | None:
    """Return the advice for a query; None if its definition can no longer be read."""
    spec = parsed_or_none(line.newest.spec) if line.newest else None
    if line.newest is None or spec is None:
        return None
    ground = ground_for(line.query, spec, line.newest.spec)
    run = line.last_run
    batches = measured_batches(line.query.pk, run) if run else []
    return QueryAdvice(
        advise(spec, ground, batches, _files(line, run) if run else None),
        line.newest.number,
        run.revision.number if run else None,
        batches[-1].at if batches else None,
    )


def _files(line: QueryLine, run: Run) -> LogFiles | None:
    """Return how a run writes its checkpoint's log entries; None if the checkpoint is local."""
    if not line.checkpoint or local_path(line.checkpoint) is not None:
        return None
    specs = (run.driver.application_revision.spec, run.revision.spec)
    chosen = [
        conf[FILE_MANAGER] for spec in specs if FILE_MANAGER in (conf := spec.get("conf", {}))
    ]
    return LogFiles(
        on_s3=line.checkpoint.startswith(("s3a:", "s3:")),
        manager=str(chosen[-1]) if chosen else "",
        fenced=not WarningCode.NOT_FENCED.find_in(run.warnings),
    )


def preflight_doubts(query: Query, raw: Mapping[str, Any]) -> list[str]:
    """Return sentences on the effects of a new definition that only a preflight can determine."""
    spec = parsed_or_none(raw)
    if spec is None:
        return []
    return doubts(spec, ground_for(query, spec, raw))


def measured_batches(query_id: int, run: Run) -> list[BatchSeen]:
    """Return the newest executed batches of a run's revision, oldest first."""
    rows = heard.progress_page(query_id, limit=ROWS)
    runs = visible.runs().filter(pk__in={row["run"] for row in rows}, revision=run.revision_id)
    wanted = set(runs.values_list("pk", flat=True))
    batch_rows = [row for row in reversed(rows) if row["run"] in wanted]
    batch_rows = [row for row in batch_rows if "derived" not in row["progress"]]
    firsts = _firsts(batch_rows)
    return [_batch(row, first=(row["run"], row["batch"]) in firsts) for row in batch_rows]


def trigger_note(line: QueryLine) -> str:
    """Return the sentence for a query whose sources have outgrown its cores; "" if they have not.

    Partitions are those of the last pass over the brokers, or those of the query's newest progress
    if it reports more.
    """
    kind = str(line.trigger.get("kind", ""))
    if kind not in HOLDING_TRIGGERS or line.newest is None:
        return ""
    spec = line.run.revision.spec if line.run else line.newest.spec
    sources = kafka_sources(spec)
    topics = partitions_by_topic([line.query.pk]).get(line.query.pk, {})
    for topic, count in _reported_partitions(line).items():
        topics[topic] = max(count, topics.get(topic, 0))
    read = {
        topic: count
        for topic, count in topics.items()
        if any(source.wanted.matches(topic) for source in sources)
    }
    return outgrown(
        kind=kind,
        cores=cores_of(_application(line), host_cores=os.cpu_count()),
        partitions=read,
        beside=sum(cores_beside(line.query.application, but=line.query.pk).values()),
    )


def _application(line: QueryLine) -> ApplicationSpec:
    """Return the application spec of the query's driver or, without one, of the next driver."""
    if line.driver is None:
        return newest_application_spec(line.query.application)
    return ApplicationSpec.model_validate(line.driver.application_revision.spec)


def _reported_partitions(line: QueryLine) -> dict[str, int]:
    """Return the partitions by topic that the newest progress reports."""
    newest = heard.latest([line.query.pk]).get(line.query.pk)
    if newest is None or newest.progress is None:
        return {}
    counts: dict[str, int] = {}
    for source in newest.progress.get("sources", ()):
        for topic, partitions in kafka_offsets(source.get("endOffset")).items():
            counts[topic] = max(len(partitions), counts.get(topic, 0))
    return counts


def _firsts(rows: Iterable[dict[str, Any]]) -> set[tuple[int, int]]:
    """Return (run, batch) of the first batch of each run among the rows."""
    first_batches: dict[int, int] = {}
    for row in rows:
        first_batches[row["run"]] = min(row["batch"], first_batches.get(row["run"], row["batch"]))
    return set(first_batches.items())


def _batch(row: dict[str, Any], *, first: bool) -> BatchSeen:
    progress = row["progress"]
    spent = progress.get("durationMs") or {}
    return BatchSeen(
        at=row["at"],
        rows=int(progress.get("numInputRows") or 0),
        trigger_ms=float(spent.get("triggerExecution") or progress.get("batchDuration") or 0),
        logs_ms=float(spent.get("walCommit") or 0) + float(spent.get("commitOffsets") or 0),
        first=first,
    )


def async_operators(
    query_id: int,
) -> list[tuple[async_calls.AsyncOperator, async_calls.OperatorAdvice]]:
    """Return a query's async operators with their limiting factor, by name; [] if it has none."""
    rows = heard.progress_page(query_id, limit=ASYNC_ROWS)
    operators = async_calls.operators([row["progress"] for row in rows])
    return [(operator, async_calls.advise(operator)) for operator in operators]


#: How far back a page looks for the newest dump.
SHOWN_DUMPS = timedelta(days=1)
#: How long a request may take; then the page says that its driver has not answered.
PATIENCE = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Dumps:
    """The newest dump of a query, and the request that is not answered yet."""

    newest: Event | None
    asked_at: datetime | None  # of the open run, if no dump was taken since
    overdue: bool  # the driver has not answered for a minute
    can_ask: bool  # a run is open


def thread_dumps(query: Query, *, now: datetime) -> Dumps:
    """Return the newest thread dump of the last day, and whether another one is requested."""
    rows = Event.objects.filter(
        query=query.pk, kind=EventKind.THREAD_DUMP, at__gt=now - SHOWN_DUMPS
    )
    newest = rows.order_by("-at").first()
    run = visible.runs().filter(query=query, outcome=RunOutcome.OPEN).first()
    requested_at = run.dump_asked_at if run is not None else None
    # The driver's clock may be behind, so its answer also repeats the request's time.
    if (requested_at is not None and newest is not None) and (
        newest.at >= requested_at or newest.body.get("asked") == requested_at.isoformat()
    ):
        requested_at = None
    overdue = requested_at is not None and now - requested_at > PATIENCE
    return Dumps(newest, requested_at, overdue, run is not None)
