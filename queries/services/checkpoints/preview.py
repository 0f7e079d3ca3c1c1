"""What a rewind or a reset will do, before it is asked for: nothing here changes anything."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from queries.checkpoints import batches
from queries.checkpoints.logs import CheckpointLogs
from queries.domain.errors import HeadgateError
from queries.domain.kafka.offset_ranges import ranges, records
from queries.models.checkpoints import SourceLag
from queries.models.definitions import Query
from queries.services.checkpoints import rewind
from queries.services.checkpoints.file_sinks import file_sink, sink_of
from queries.services.checkpoints.snapshot import local_logs
from queries.services.checkpoints.source_starts import Moved, Wish, starts
from queries.services.checkpoints.switching import current

#: Formats whose rows are kept nowhere.
_UNKEPT = frozenset({"noop", "console", "memory"})


@dataclass(frozen=True, slots=True)
class Preview:
    """What is replayed or skipped, and who will notice."""

    verb: str
    refusal: str  # why it cannot be done; "" where it can
    batch: int | None = None  # rewind: the batch after which it goes on
    newest: int | None = None  # the newest committed batch
    batches: int | None = None  # that are done again
    records: int | None = None  # read again; None where it cannot be counted
    files: int | None = None  # read again
    moved: tuple[Moved, ...] = ()  # a partition or a file source each
    sink: tuple[str, ...] = ()  # what it will see, in sentences
    warnings: tuple[str, ...] = field(default=())


def preview_rewind(query: Query, batch: int) -> Preview:
    """Say what going on from after `batch` means; raise `NotAllowed` for a checkpoint elsewhere."""
    logs = local_logs(current(query).location)
    newest = logs.last_commit()
    try:
        rewind.check(query, batch)
    except HeadgateError as error:
        return Preview("rewind", str(error), batch=batch, newest=newest)
    before, after = logs.offsets(batch), logs.offsets(max(logs.begun()))
    if before is None or after is None:
        reason = f"The offsets of batch {batch} are purged."
        return Preview("rewind", reason, batch=batch, newest=newest)
    found = ranges(before.sources, after.sources)
    earliest = _earliest(query)
    moved = [
        Moved(
            source=each.source,
            what=f"{each.topic}-{each.partition}",
            before=each.end,
            after=each.start,
            repeated=each.records,
            skipped=0,
            note=_gone(each.start, earliest.get((each.topic, each.partition))),
        )
        for each in found
    ]
    again = [number for number in logs.begun() if number > batch]
    read = batches.files_between(logs, batch, max(logs.begun()))
    files, missing = len(read) or None, sum(file.there is False for file in read)
    warnings = _in_flight(logs) + _missing(files, missing)
    if any(each.note for each in moved):
        warnings.append("Some of it is deleted at the broker: the query will fail there, or skip.")
    return Preview(
        "rewind",
        "",
        batch=batch,
        newest=newest,
        batches=len(again),
        records=records(found),
        files=files,
        moved=tuple(moved),
        sink=tuple(_rewound_sink(query, batch, again)),
        warnings=tuple(warnings),
    )


def preview_reset(query: Query, wish: Wish) -> Preview:
    """Say what beginning elsewhere means; brokers are asked, nothing is changed."""
    logs = local_logs(current(query).location)
    newest = logs.last_commit()
    try:
        found = starts(query, logs, wish)
    except HeadgateError as error:
        return Preview("reset", str(error), newest=newest)
    again = [each.repeated for each in found.moved if each.before is not None]
    counted = [count for count in again if count is not None]
    files = [each.repeated for each in found.moved if each.before is None]
    sums = [count for count in files if count is not None]
    warnings = _in_flight(logs)
    if found.stateful:
        warnings.insert(0, "Its state is left behind: aggregates, joins and windows begin empty.")
    return Preview(
        "reset",
        "",
        newest=newest,
        records=sum(counted) if counted else None,
        files=sum(sums) if sums else None,
        moved=found.moved,
        sink=tuple(_reset_sink(query, found.stateful, newest)),
        warnings=tuple(warnings),
    )


# --- sentences ----------------------------------------------------------------------------


def _rewound_sink(query: Query, batch: int, again: Sequence[int]) -> list[str]:
    kind, where = sink_of(query)
    sink = file_sink(query)
    if not again:
        return ["It sees nothing twice: no batch is done again."]
    span = f"batches {again[0]} to {again[-1]}" if len(again) > 1 else f"batch {again[0]}"
    if sink is not None:
        dropped = sink.beyond(batch)
        return [
            f"The files of {span} are moved aside, {len(dropped.files)} of them, to "
            f"{sink.root}/_headgate, and taken out of the sink's log; its readers see each row "
            "once. Who has copied them already has them twice."
        ]
    return [_twice(kind, where, span)]


def _reset_sink(query: Query, stateful: bool, newest: int | None) -> list[str]:
    kind, where = sink_of(query)
    sink = file_sink(query)
    if sink is not None and stateful:
        return [
            f"All it has written to {sink.root} is moved aside, to {sink.root}/_headgate: the "
            "query counts its batches from 0 again, and Spark would skip the numbers in the log."
        ]
    if sink is not None:
        return [f"{sink.root} keeps what it has; what is read again is written a second time."]
    said = [_twice(kind, where, "what is read again")]
    if stateful and kind not in _UNKEPT:
        said.append(
            "Batches are counted from 0 again: code that skips batch numbers it has seen skips "
            f"all up to {newest}."
        )
    return said


def _twice(kind: str, where: str, what: str) -> str:
    if kind == "kafka":
        return f"Topic {where} gets the rows of {what} a second time: its readers see both."
    if kind in _UNKEPT:
        return f"The {kind} sink keeps nothing, so nothing is there twice."
    return (
        f"The query's own code is handed the rows of {what} a second time, perhaps cut into other "
        "batches. Code that skips batch numbers it has seen would lose rows: it must be told."
    )


def _in_flight(logs: CheckpointLogs) -> list[str]:
    batch = logs.in_flight()
    if batch is None:
        return []
    return [
        f"Batch {batch} has begun and not committed. Its offsets are dropped, so its rows are "
        "read again, perhaps cut into other batches."
    ]


def _missing(files: int | None, missing: int) -> list[str]:
    if not missing:
        return []
    more = " at least" if files == batches.FILES_AT_MOST else ""
    return [
        f"{missing} of{more} {files} files are not there any more: their rows cannot be read again."
    ]


def _gone(start: int | None, earliest: int | None) -> str:
    if start is None or earliest is None or start >= earliest:
        return ""
    return f"gone: the broker begins at {earliest}"


def _earliest(query: Query) -> dict[tuple[str, int], int]:
    rows = SourceLag.objects.filter(query=query).exclude(earliest=None)
    return {(row.source, row.partition): row.earliest for row in rows if row.earliest is not None}
