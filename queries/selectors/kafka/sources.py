"""Find existing queries that read Kafka, their options, and how far each has committed.

The checkpoint's logs show this for every query, running or not; a running query's progress may be
newer. If a query is a Python function, only its code knows the topics and the broker: for such a
query, its run's progress is the only source of information.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q, QuerySet

from headgate_ground.files import read_file
from listeners import selectors as heard
from listeners.selectors import LatestLine
from queries.brokers.options import TopicSelection, Unusable, broker_set, wanted
from queries.checkpoints.logs import NotLocal, names_in
from queries.domain.checkpoints.logs import UnreadableLog, first_offsets
from queries.domain.kafka.lag import further, kafka_offsets, merged
from queries.domain.states import Phase, RunOutcome
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Run
from queries.selectors.checkpoint_logs import available_logs
from queries.selectors.hosts import logs_at
from queries.selectors.rows import current_checkpoints, newest_revisions, newest_runs

#: Isolates one element of several, named for the log (`listeners.loops.each.LoopErrors.by_itself`).
ByItself = Callable[[str], AbstractContextManager[object]]
Offsets = dict[str, dict[int, int]]  # topic -> partition -> next offset to read


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """A Kafka source in a definition."""

    name: str
    wanted: TopicSelection
    brokers: tuple[tuple[str, str], ...]  # its `kafka.*` options, with references unresolved
    fails_on_loss: bool
    error: str = ""  # why it cannot be queried


@dataclass(frozen=True, slots=True)
class Reading:
    """An existing query that reads Kafka: its sources and its committed offsets."""

    query: Query
    run: Run | None  # the open one
    sources: tuple[KafkaSource, ...]
    committed: Offsets = field(default_factory=dict)
    checkpoint: Checkpoint | None = None  # the current one
    #: The broker sets that its newest run has read from.
    started: frozenset[tuple[tuple[str, str], ...]] = frozenset()

    @property
    def running(self) -> bool:
        """Return whether the query is processing now."""
        return self.run is not None and self.query.phase == Phase.RUNNING

    @property
    def may_have_read(self) -> bool:
        """Return whether a run may have read more than its newest commit says.

        A consumer fetches ahead, so records that the topic has since deleted may still reach the
        sink.
        """
        return self.run is not None


def readings(
    query_ids: Iterable[int] | None = None,
    *,
    where: Q | None = None,
    isolate: ByItself = nullcontext,
    passed_over: set[int] | None = None,
) -> list[Reading]:
    """Return the existing queries that read Kafka: all of them, or those with these ids.

    `where` is a condition on the query's row. `isolate` isolates the reads of one query, so that an
    error omits only that query. The ids of omitted queries are added to `passed_over`.
    """
    rows = Query.objects.filter(where or Q(), archived_at__isnull=True)
    rows = rows.select_related("application")
    if query_ids is not None:
        rows = rows.filter(pk__in=list(query_ids))
    queries = {query.pk: query for query in rows.filter(pk__in=_naming_kafka())}
    runs = newest_runs(list(queries))
    open_runs = {pk: run for pk, run in runs.items() if run.outcome == RunOutcome.OPEN}
    specs = {pk: row.spec for pk, row in newest_revisions(list(queries)).items()}
    specs |= {pk: run.revision.spec for pk, run in open_runs.items()}
    sources: dict[int, tuple[KafkaSource, ...]] = {}
    for pk, spec in specs.items():
        with isolate(f"the sources of {queries[pk].name}"):
            sources[pk] = kafka_sources(spec)
    reading = [pk for pk, read in sources.items() if read]
    latest = heard.latest(reading)
    checkpoints = current_checkpoints(reading)
    kafka_readings = []
    for pk in reading:
        with isolate(f"the offsets of {queries[pk].name}"):
            committed = further(
                committed_at(checkpoints[pk].location) if pk in checkpoints else {},
                _reported_offsets(latest.get(pk), open_runs.get(pk)),
            )
            kafka_readings.append(
                Reading(
                    query=queries[pk],
                    run=open_runs.get(pk),
                    sources=sources[pk],
                    committed=committed,
                    checkpoint=checkpoints.get(pk),
                    started=_brokers_of(runs.get(pk)),
                )
            )
    if passed_over is not None:
        passed_over |= specs.keys() - sources.keys()
        passed_over |= set(reading) - {kafka_reading.query.pk for kafka_reading in kafka_readings}
    return kafka_readings


def _brokers_of(run: Run | None) -> frozenset[tuple[tuple[str, str], ...]]:
    sources = kafka_sources(run.revision.spec) if run is not None else ()
    return frozenset(source.brokers for source in sources)


def _naming_kafka() -> QuerySet[QueryRevision, Any]:
    """Return the ids of queries with a revision that mentions Kafka: usually few of many."""
    return QueryRevision.objects.filter(names_kafka=True).order_by().values("query")


@dataclass(frozen=True, slots=True)
class ReportedOffsets:
    """The offsets of Kafka partitions that only a running query's progress reports."""

    query: Query
    committed: Offsets
    latest: Offsets


def offsets_in_progress(
    but: Iterable[int], *, where: Q | None = None, isolate: ByItself = nullcontext
) -> list[ReportedOffsets]:
    """Return the running queries whose code reads Kafka, with the offsets in their progress.

    `but` are the queries whose definitions contain their sources. `where` is a condition on the
    row, and `isolate` isolates the reads of each query.
    """
    rows = Query.objects.filter(where or Q(), archived_at__isnull=True, phase=Phase.RUNNING)
    queries = {query.pk: query for query in rows.exclude(pk__in=list(but))}
    lines = heard.latest(list(queries))
    latest: dict[int, Offsets] = {}  # of the few that report offsets of Kafka
    for pk, line in lines.items():
        with isolate(f"the reported offsets of {queries[pk].name}"):
            sources = (line.progress or {}).get("sources") or ()
            if latest_offsets := merged(
                kafka_offsets(source.get("latestOffset")) for source in sources
            ):
                latest[pk] = latest_offsets
    reported_offsets = []
    for pk, run in newest_runs(list(latest)).items():
        if run.outcome != RunOutcome.OPEN:
            continue
        with isolate(f"the reported offsets of {queries[pk].name}"):
            if committed := _reported_offsets(lines[pk], run):
                reported_offsets.append(ReportedOffsets(queries[pk], committed, latest[pk]))
    return reported_offsets


def kafka_sources(spec: Mapping[str, object]) -> tuple[KafkaSource, ...]:
    """Return the Kafka sources of a definition's JSON form."""
    parsed_sources = []
    sources = spec.get("sources")
    for source in sources if isinstance(sources, list) else ():
        if source.get("format") != "kafka":
            continue
        options: dict[str, str] = source.get("options") or {}
        fail_on_loss = next(
            (v for k, v in options.items() if k.lower() == "failondataloss"), "true"
        )
        try:
            selection, error = wanted(options), ""
        except Unusable as unusable:
            selection, error = TopicSelection(), str(unusable)
        parsed_sources.append(
            KafkaSource(
                name=source.get("name", ""),
                wanted=selection,
                brokers=broker_set(options),
                fails_on_loss=fail_on_loss.strip().lower() != "false",
                error=error,
            )
        )
    return tuple(parsed_sources)


def committed_at(location: str) -> Offsets:
    """Return the next offsets to read after a checkpoint's newest commit; {} if there is none."""
    try:
        logs = available_logs(location)
        batch = logs.last_commit()
        offsets = logs.offsets(batch) if batch is not None else None
    except (NotLocal, UnreadableLog, OSError):
        return {}
    if offsets is None:
        return {}
    return merged(kafka_offsets(value) for value in offsets.sources.values())


def history_at(location: str) -> list[tuple[int, Offsets]]:
    """Return the next offsets to read after each committed batch of a checkpoint, oldest first.

    The history goes back only as far as the known part of the log. A batch that has started but not
    committed counts as unread: it may fail, or start again with other offsets. With async progress
    tracking, not every batch has its own commit, so the newest commit also covers all earlier
    batches.
    """
    try:
        logs = available_logs(location)
        newest = logs.last_commit()
        batches = [] if newest is None else [number for number in logs.begun() if number <= newest]
    except (NotLocal, UnreadableLog, OSError):
        return []
    history = []
    for batch in batches:
        offsets = logs.readable_offsets(batch)
        if offsets is not None:
            history.append(
                (batch, merged(kafka_offsets(value) for value in offsets.sources.values()))
            )
    return history


def first_offsets_at(location: str) -> Offsets:
    """Return the offsets at which a checkpoint's first batch begins, as stored by its sources.

    These offsets exist before the first batch commits. Returns {} if they cannot be read.
    """
    try:
        folder = logs_at(location).root / "sources"
        texts = [read_file(folder / name / "0", within=folder) or "" for name in names_in(folder)]
    except (NotLocal, UnreadableLog, OSError, UnicodeDecodeError):
        return {}
    return merged(kafka_offsets(first_offsets(text)) for text in texts)


def _reported_offsets(latest: LatestLine | None, run: Run | None) -> Offsets:
    """Return the offsets from the open run's newest progress, which follows the commit."""
    if latest is None or run is None or latest.run != run.pk or latest.progress is None:
        return {}
    if latest.progress.get("runId") != run.spark_run_id:
        return {}  # the newest batch belongs to an earlier run
    sources = latest.progress.get("sources") or ()
    return merged(kafka_offsets(source.get("endOffset")) for source in sources)
