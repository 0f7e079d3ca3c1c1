"""Read a query's checkpoint: its batches, their progress, and its state."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, OuterRef, Prefetch, QuerySet, Subquery
from django.template.defaultfilters import filesizeformat

from headgate_ground.tolerant import count, total
from listeners.models import Progress
from queries.checkpoints import batches, state
from queries.checkpoints.batches import LoggedBatch
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.state import StateOperator
from queries.domain.checkpoints.batches import Growth, growth, is_uncounted
from queries.domain.hosts import memory_mb
from queries.models.checkpoints import Snapshot
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.selectors.rows import first_or_missing

#: How far back the Lag page names batches whose rows nobody counted, and of how many runs.
UNCOUNTED_SHOWN, _RUNS = timedelta(days=1), 100
#: How far back state is examined, and most batches read for that.
STATE_SPAN = timedelta(hours=6)
STATE_POINTS = 240


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """A state operator: the contents of its files, and the newest batch's report."""

    operator: StateOperator
    rows: int | None
    memory_bytes: int | None
    updated: int | None  # rows in the newest batch
    dropped_late: int | None  # rows later than the watermark in the newest batch
    store: str  # the provider's own figure to show, "" if none
    reported_at: datetime | None  # when that batch started; None: nothing reported


@dataclass(frozen=True, slots=True)
class StateHistory:
    """The total state of all operators, batch by batch, and its growth."""

    points: tuple[tuple[datetime, int, int], ...]  # (at, rows, bytes), oldest first
    limit_bytes: int | None  # the driver's memory
    growth: Growth


@dataclass(frozen=True, slots=True)
class Pinned:
    """A configuration key pinned by the checkpoint."""

    key: str
    pinned: str
    defined: str | None  # value in the definition; None if not set
    differs: bool  # both set it to different values: the checkpoint wins


def rows_of(query: Query, shown: Iterable[LoggedBatch]) -> dict[int, int | None]:
    """Return the number of rows that each batch read; the newest run of a batch counts.

    Batches whose progress events do not include this number are omitted; it is None for those that
    were repeated without reading their rows (`uncounted_batches`).
    """
    numbers = [batch.number for batch in shown]
    events = Progress.objects.filter(
        query=query.pk, batch__in=numbers, body__has_key="numInputRows"
    )
    rows = dict(events.order_by("epoch", "seq").values_list("batch", "num_input_rows"))
    empty = events.filter(batch__in=[number for number, read in rows.items() if read == 0])
    bodies = dict(empty.order_by("epoch", "seq").values_list("batch", "body"))
    unread = {number for number, body in bodies.items() if is_uncounted(body)}
    return {number: None if number in unread else read for number, read in rows.items()}


def uncounted_batches(query: Query, *, now: datetime) -> list[int]:
    """Return the batches of the last day that were repeated without reading their rows, in order.

    Such a batch is the first of its run, so only these are read.
    """
    runs = Run.objects.filter(query=query, first_commit_at__gt=now - UNCOUNTED_SHOWN)
    newest = runs.order_by("-epoch").values_list("pk", flat=True)[:_RUNS]
    first = Progress.objects.filter(run=OuterRef("run")).order_by("batch").values("batch")[:1]
    rows = Progress.objects.filter(run__in=list(newest), num_input_rows=0, batch=Subquery(first))
    bodies = rows.order_by("batch").values_list("batch", "body")
    return sorted({batch for batch, body in bodies if is_uncounted(body)})


def operator_lines(query: Query, logs: CheckpointLogs) -> list[OperatorLine]:
    """Return the state operators of a checkpoint, with the newest batch's figures of each."""
    listed = state.operators(logs)
    newest = Progress.objects.filter(query=query.pk).order_by("-epoch", "-seq").first()
    reported_operators: list[dict[str, Any]] = (
        (newest.body.get("stateOperators") or []) if newest else []
    )
    # Spark reports operators in plan order, from the source upwards, which is also the order of
    # their ids.
    lines = []
    for index, operator in enumerate(listed):
        figures = (
            reported_operators[index]
            if index < len(reported_operators) and len(reported_operators) == len(listed)
            else {}
        )
        lines.append(
            OperatorLine(
                operator=operator,
                rows=count(figures.get("numRowsTotal")),
                memory_bytes=count(figures.get("memoryUsedBytes")),
                updated=count(figures.get("numRowsUpdated")),
                dropped_late=count(figures.get("numRowsDroppedByWatermark")),
                store=_store(figures.get("customMetrics") or {}),
                reported_at=newest.at if newest and figures else None,
            )
        )
    return lines


def state_history(query: Query, *, now: datetime) -> StateHistory:
    """Return the samples of the state's size over the last hours, and its growth."""
    rows = Progress.objects.filter(
        query=query.pk, at__gte=now - STATE_SPAN, state_rows__isnull=False
    ).order_by("at")
    keys = list(rows.values_list("pk", flat=True))
    step = max(1, len(keys) // STATE_POINTS)
    chosen = keys[::-1][::step][::-1]  # includes the newest
    samples = Progress.objects.filter(pk__in=chosen).order_by("at")
    points = tuple((row.at, row.state_rows or 0, _memory(row.body)) for row in samples)
    limit = _limit(query)
    judged = growth([(at.timestamp(), float(size)) for at, _, size in points], limit)
    return StateHistory(points, limit, judged)


def pinned_configuration(query: Query, logs: CheckpointLogs) -> list[Pinned]:
    """Return the configuration that the checkpoint pins and definitions set, differences first."""
    application = query.application.revisions.order_by("-number")[0].spec.get("conf") or {}
    own = query.revisions.order_by("-number")[0].spec.get("conf") or {}
    conf = {**application, **own}
    pins = []
    for key, value in sorted(batches.pinned(logs).items()):
        defined = conf.get(key)
        differs = defined is not None and str(defined) != str(value)
        pins.append(Pinned(key, str(value), defined, differs))
    return sorted(pins, key=lambda pin: (not pin.differs, pin.defined is None, pin.key))


def snapshots_of(query: Query) -> QuerySet[Snapshot]:
    """Return a query's snapshots whose files exist, newest first."""
    return (
        Snapshot.objects.filter(checkpoint__query=query, removed_at=None)
        .select_related("checkpoint", "operation")
        .order_by("-taken_at", "-pk")
    )


def snapshot_of(query: Query, pk: int) -> Snapshot:
    """Return one of a query's existing snapshots; raise `Missing` if there is none."""
    rows = snapshots_of(query).filter(pk=min(pk, 2**62))  # a larger number is no valid primary key
    return first_or_missing(rows, f"{query.name} has no snapshot {pk}.")


def earlier_checkpoints(query: Query) -> QuerySet[Checkpoint]:
    """Return the query's previous checkpoints, newest first."""
    return query.checkpoints.exclude(retired_at=None).order_by("-retired_at")


def open_procedure(query: Query) -> Operation | None:
    """Return a query's open operation with steps; None if there is none."""
    return query.operations.filter(outcome="").exclude(steps=[]).order_by("pk").first()


def _memory(body: dict[str, Any]) -> int:
    return total(body.get("stateOperators"), "memoryUsedBytes") or 0


def _limit(query: Query) -> int | None:
    spec = query.application.revisions.order_by("-number")[0].spec
    return int(memory_mb(spec["memory"]) * 1024 * 1024) if spec.get("memory") else None


def _store(metrics: dict[str, Any]) -> str:
    if "rocksdbSstFileSize" in metrics:
        return f"SST files {filesizeformat(metrics['rocksdbSstFileSize'])}"
    if "stateOnCurrentVersionSizeBytes" in metrics:
        return f"newest version {filesizeformat(metrics['stateOnCurrentVersionSizeBytes'])}"
    return ""


def checkpoints() -> QuerySet[Checkpoint]:
    """Return the checkpoints by location, those in use first, each with its query.

    The attribute `newest_runs` of each contains the newest run on it, with its driver, if any.
    """
    newest = Run.objects.filter(checkpoint=OuterRef("checkpoint")).order_by("-epoch")
    newest_runs = Run.objects.filter(pk=Subquery(newest.values("pk")[:1])).select_related("driver")
    return (
        Checkpoint.objects.select_related("query", "query__application", "built_from")
        .prefetch_related(Prefetch("runs", queryset=newest_runs, to_attr="newest_runs"))
        .order_by(F("retired_at").asc(nulls_first=True), "location", "pk")
    )


def run_counts(shown: Iterable[Checkpoint]) -> dict[int, int]:
    """Return the number of runs on each of these checkpoints, in one database query."""
    rows = Run.objects.filter(checkpoint__in=list(shown)).order_by().values_list("checkpoint")
    return dict(rows.annotate(Count("pk")))
