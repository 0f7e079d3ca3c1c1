"""Preview a rewind or a reset; nothing in this module changes anything."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from django.utils import timezone

from queries.checkpoints import batches
from queries.checkpoints.file_sink import ASIDE
from queries.checkpoints.logs import CheckpointLogs
from queries.domain.checkpoints.logs import begun_at
from queries.domain.definitions.spec import FILES, UNKEPT_SINKS
from queries.domain.errors import HeadgateError
from queries.domain.kafka.offsets import ranges, records
from queries.domain.readings import counted
from queries.domain.tables.places import TablePlace
from queries.domain.tables.replay import InTable, continued, new_id, restarted, resumed, rewound
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Query
from queries.services.checkpoints import rewind_and_reset
from queries.services.checkpoints.file_sinks import (
    file_sink,
    mirrored_log,
    remote_sink,
    sink_mirror,
    sink_of,
)
from queries.services.checkpoints.remote import readable_logs
from queries.services.checkpoints.rewind_and_reset import left_on
from queries.services.checkpoints.source_starts import MovedSource, WantedStart, starts
from queries.services.checkpoints.switching import current, effects, table_of


@dataclass(frozen=True, slots=True)
class CheckpointPreview:
    """The batches or records replayed or skipped, and the effects on the sink."""

    verb: str
    refusal: str  # why it cannot be done; "" if it can
    batch: int | None = None  # rewind: the batch after which it continues
    newest: int | None = None  # the newest committed batch
    batches: int | None = None  # batches replayed
    records: int | None = None  # read again; None if unknown
    files: int | None = None  # read again
    moved: tuple[MovedSource, ...] = ()  # one per partition or file source
    sink: tuple[str, ...] = ()  # effects on the sink, as sentences
    warnings: tuple[str, ...] = ()


def preview_rewind(query: Query, batch: int) -> CheckpointPreview:
    """Preview continuing after `batch`; raise `NotAllowed` if the checkpoint is not local."""
    logs = readable_logs(current(query).location)
    newest = logs.last_commit()
    try:
        rewind_and_reset.check(query, batch, now=timezone.now())
    except HeadgateError as error:
        return CheckpointPreview("rewind", str(error), batch=batch, newest=newest)
    origin_logs = readable_logs(rewind_and_reset.origin_of(query, batch))
    before, after = origin_logs.offsets(batch), logs.offsets(max(logs.begun()))
    if before is None or after is None:
        reason = f"The offsets of batch {batch} have been purged."
        return CheckpointPreview("rewind", reason, batch=batch, newest=newest)
    offset_ranges = ranges(begun_at(before, after), after.sources)
    earliest = _earliest(query)
    moved = [
        MovedSource(
            source=offset_range.source,
            what=f"{offset_range.topic}-{offset_range.partition}",
            before=offset_range.end,
            after=offset_range.start,
            repeated=offset_range.records,
            skipped=0,
            note=_retention_note(
                offset_range.start, earliest.get((offset_range.topic, offset_range.partition))
            ),
        )
        for offset_range in offset_ranges
    ]
    again = [number for number in logs.begun() if number > batch]
    read = batches.files_between(logs, batch, max(logs.begun()))
    files, missing = len(read) or None, sum(file.exists is False for file in read)
    warnings = _in_flight(logs) + _missing(files, missing)
    if any(offset_range.note for offset_range in moved):
        warnings.append(
            "Some of these records have been deleted from the broker: the query will fail on them "
            "or skip them."
        )
    return CheckpointPreview(
        "rewind",
        "",
        batch=batch,
        newest=newest,
        batches=len(again),
        records=records(offset_ranges),
        files=files,
        moved=tuple(moved),
        sink=tuple(_rewound_sink(query, batch, again)),
        warnings=tuple(warnings),
    )


def preview_reset(query: Query, wish: WantedStart) -> CheckpointPreview:
    """Preview starting elsewhere. Queries brokers, but does not change anything."""
    left = left_on(query)
    logs = None if left else readable_logs(current(query).location)
    newest = logs.last_commit() if logs else None
    try:
        new_starts = starts(query, logs, wish)
        if new_starts.stateful:
            remote_sink(query)
    except HeadgateError as error:
        return CheckpointPreview("reset", str(error), newest=newest)
    countable = [
        moved_source for moved_source in new_starts.moved if moved_source.repeated is not None
    ]
    counted = [
        moved_source.repeated or 0 for moved_source in countable if moved_source.before is not None
    ]
    files = [
        moved_source.repeated or 0 for moved_source in countable if moved_source.before is None
    ]
    warnings = _in_flight(logs) if logs else []
    if left:
        warnings.append(
            f"Its checkpoint stays on host {left}: how far the query has read is unknown, and "
            "batches are numbered from 0. If the query still runs there, it may write to the same "
            "sink."
        )
    elif new_starts.stateful:
        warnings.insert(
            0, "Its state is not carried over: aggregates, joins and windows start empty."
        )
    return CheckpointPreview(
        "reset",
        "",
        newest=newest,
        records=sum(counted) if counted else None,
        files=sum(files) if files else None,
        moved=new_starts.moved,
        sink=tuple(
            _reset_table(query, table, new_starts.stateful, logs)
            if (table := table_of(query))
            else _reset_sink(query, new_starts.stateful, newest)
        ),
        warnings=tuple(warnings),
    )


def preview_clone(query: Query, *, same_sink: bool, batch: int | None = None) -> CheckpointPreview:
    """Preview a clone that continues after `batch`, None for the newest; it gets its own ID."""
    newest = readable_logs(current(query).location).last_commit()
    table = table_of(query)
    if table is not None:
        lines = new_id(table.name, same=same_sink)
    elif same_sink:
        lines = [_twice(*sink_of(query), "both queries")]
    else:
        lines = ["The clone writes to its own sink; that of the original is not changed."]
    if batch is None:
        batch = newest
    return CheckpointPreview("clone", "", batch=batch, newest=newest, sink=tuple(lines))


def preview_go_on(query: Query) -> CheckpointPreview:
    """Preview continuing without lost source data: the ID and the batch numbers stay."""
    logs = readable_logs(current(query).location)
    lines = on_go_on(query)
    return CheckpointPreview("go-on", "", newest=logs.last_commit(), sink=tuple(lines))


def on_go_on(query: Query) -> list[str]:
    """Return the effects of skipping lost data on the query's table; [] for other sinks."""
    table = table_of(query)
    if table is None:
        return []
    batch = readable_logs(current(query).location).in_flight()
    return effects(
        query, table, lambda name, in_table: resumed(name, in_table, batch), now=timezone.now()
    )


# --- sentences ----------------------------------------------------------------------------


def _rewound_sink(query: Query, batch: int, again: Sequence[int]) -> list[str]:
    sink = file_sink(query)
    if not again:
        return ["No duplicates: no batch is replayed."]
    if (table := table_of(query)) is not None:
        describe = partial(_rewound_table, batch, again[-1])
        return effects(query, table, describe, now=timezone.now())
    span = f"batches {again[0]} to {again[-1]}" if len(again) > 1 else f"batch {again[0]}"
    folder = remote_sink(query)
    if sink is not None or folder:
        log = sink if sink is not None else mirrored_log(query, folder, now=timezone.now())
        dropped = log.beyond(batch)
        are = "is" if len(dropped.files) == 1 else "are"
        sentence = (
            f"{counted(len(dropped.files), 'file')} of {span} {are} moved to "
            f"{sink.root if sink else folder}/{ASIDE} and removed from the sink's log; its readers "
            "see each row once. Anyone who already copied these files will get the rows twice."
        )
        return [sentence, *_moving(folder, len(dropped.files), dropped.bytes, searched=True)]
    return [_twice(*sink_of(query), span)]


def _rewound_table(batch: int, newest: int, name: str, in_table: InTable) -> list[str]:
    return rewound(name, in_table, batch, newest)


def _reset_table(
    query: Query, table: TablePlace, stateful: bool, logs: CheckpointLogs | None
) -> list[str]:
    """Return a table's behaviour on a reset, which keeps the ID unless the checkpoint is gone."""
    if logs is None:
        return new_id(table.name, same=True)
    if stateful:
        return effects(query, table, restarted, now=timezone.now())
    batch = max(logs.begun(), default=0)
    return effects(
        query, table, lambda name, in_table: continued(name, in_table, batch), now=timezone.now()
    )


def _reset_sink(query: Query, stateful: bool, newest: int | None) -> list[str]:
    kind, where = sink_of(query)
    sink = file_sink(query)
    root = str(sink.root) if sink else where if kind == "file" or kind in FILES else ""
    if root and not stateful:
        return [f"{root} keeps its files; rows that are read again are written a second time."]
    if root:
        sink_location = remote_sink(query)
        moved = (
            f"Everything it has written to {root} is moved to {root}/{ASIDE}: the query numbers "
            "its batches from 0 again, and Spark would skip the numbers in the log."
        )
        files = (
            mirrored_log(query, sink_location, now=timezone.now()).files() if sink_location else {}
        )
        return [moved, *_moving(sink_location, len(files), sum(files.values()))]
    sentences = [_twice(kind, where, "the records that are read again")]
    if stateful and kind not in UNKEPT_SINKS:
        sentences.append(
            "Batches are numbered from 0 again: code that skips batch numbers it has seen will "
            f"skip all batches up to {newest}."
        )
    return sentences


def _moving(sink_location: str, files: int, size: int, *, searched: bool = False) -> list[str]:
    """Return the cost of moving files on remote storage; nothing for a local disk."""
    if not sink_location:
        return []
    rate = sink_mirror(sink_location).rate()
    took = f" At the speed of the last move, that takes {files / rate:,.0f} s." if rate else ""
    listed = " All objects of the sink are listed once." if searched else ""
    return [
        f"On an object store, each file ({counted(files, 'file')}, {size / 1e6:,.1f} MB) is copied "
        f"within the store and then deleted; HDFS renames them.{listed}{took}"
    ]


def _twice(kind: str, where: str, what: str) -> str:
    if kind == "kafka":
        return f"Topic {where} gets the rows of {what} a second time; its readers see both copies."
    if kind in UNKEPT_SINKS:
        return f"The {kind} sink keeps nothing, so nothing is duplicated."
    return (
        f"The query's own code gets the rows of {what} a second time, possibly split into "
        "different batches. Code that skips batch numbers it has seen would lose rows and must be "
        "adapted."
    )


def _in_flight(logs: CheckpointLogs) -> list[str]:
    batch = logs.in_flight()
    if batch is None:
        return []
    return [
        f"Batch {batch} has started but not committed. Its offsets are dropped, so its rows are "
        "read again, possibly split into different batches."
    ]


def _missing(files: int | None, missing: int) -> list[str]:
    if not missing:
        return []
    more = " at least" if files == batches.FILES_AT_MOST else ""
    of = f"{missing} of{more} {counted(files or 0, 'file')}"
    phrase = "no longer exists; its" if missing == 1 else "no longer exist; their"
    return [f"{of} {phrase} rows cannot be read again."]


def _retention_note(start: int | None, earliest: int | None) -> str:
    if start is None or earliest is None or start >= earliest:
        return ""
    return f"deleted: the broker starts at {earliest}"


def _earliest(query: Query) -> dict[tuple[str, int], int]:
    rows = SourceLag.objects.filter(query=query, partition__gte=0).exclude(earliest=None)
    return {(row.source, row.partition): row.earliest for row in rows if row.earliest is not None}
