"""Determine where each source of a query starts after a reset, and the repeated or skipped data."""

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from headgate_ground.files import NotPlain, read_file
from queries.brokers.options import Unusable, client_options
from queries.brokers.reader import At, BrokerReader, PartitionEnds, Unreachable
from queries.checkpoints.batches import ELSEWHERE, files_of_source
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.new_checkpoint import SourceStart, is_stateful
from queries.domain.checkpoints.logs import first_offsets
from queries.domain.definitions.spec import FILES
from queries.domain.errors import Invalid, NotAllowed, Problem, Unavailable
from queries.domain.kafka.offsets import is_file, is_kafka
from queries.models.definitions import Query
from queries.secret_references import ReferenceMissing
from queries.selectors.kafka.sources import KafkaSource, kafka_sources
from queries.services.local_roots import local_references
from queries.services.secrets import files_outside, unbound_sentence

Target = Literal["earliest", "latest", "time", "offsets"]
TARGETS: tuple[Target, ...] = ("earliest", "latest", "time", "offsets")


@dataclass(frozen=True, slots=True)
class WantedStart:
    """The starting point requested for a reset."""

    to: Target
    at: datetime | None = None  # for "time"
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # topic: {partition: n}


@dataclass(frozen=True, slots=True)
class MovedSource:
    """One partition or file source, before and after."""

    source: str
    what: str  # "flights-0", or what the files are
    before: int | None
    after: int | None
    repeated: int | None = None  # records or files that are read again
    skipped: int | None = None  # never read
    note: str = ""


@dataclass(frozen=True, slots=True)
class Starts:
    """The starting positions of all sources, and their consequences."""

    starts: tuple[SourceStart, ...]
    moved: tuple[MovedSource, ...]
    stateful: bool


def offsets_of(raw_offsets: Any) -> dict[str, dict[str, int]]:
    """Parse offsets as {topic: {partition: offset}}; raise `Invalid` for any other structure."""
    try:
        offsets = {
            str(topic): {str(int(number)): int(at) for number, at in parts.items()}
            for topic, parts in raw_offsets.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise _not_offsets(
            raw_offsets, "is not a valid set of offsets.", 'Write {"flights": {"0": 1200}}.'
        ) from error
    if any(abs(at) > 2**62 for parts in offsets.values() for at in parts.values()):
        raise _not_offsets(raw_offsets, "contains an impossible offset.")
    return offsets


def _not_offsets(raw_offsets: Any, message: str, way_out: str = "") -> Invalid:
    return Invalid([Problem("offsets", str(raw_offsets)[:200], message, way_out)])


def starts(query: Query, logs: CheckpointLogs | None, wish: WantedStart) -> Starts:
    """Return where every source starts. Queries brokers, and so may raise `Unavailable`.

    If `logs` is None, the logs are on a host that is gone. In that case, the sources are taken from
    the definition, and the query starts at batch 0, as a stateful query always does.

    Raises `NotAllowed` if a source cannot start there, and `Invalid` for offsets out of range.
    """
    if wish.to == "time" and wish.at is None:
        raise Invalid([Problem("at", "", "is missing.", "Set the time to start from.")])
    sources = query.revisions.order_by("-number")[0].spec.get("sources") or []
    ends, stateful = _read_positions(query, logs, sources, wish)
    read = _read(logs, list(ends)) if logs is not None else {}
    new_starts: list[SourceStart] = []
    moved: list[MovedSource] = []
    for index, (name, end) in enumerate(ends.items()):
        spec = sources[index] if index < len(sources) else {}
        if is_kafka(end) or spec.get("format") == "kafka":
            host = query.application.name
            refused = unbound_sentence({"sources": [spec]}, host)
            if refused := refused or files_outside(spec.get("options") or {}, host):
                raise NotAllowed(f"The broker of source {name} is not contacted: {refused}")
            start, rows = _kafka(name, read.get(name) or {}, spec, wish)
        elif is_file(end) or spec.get("format") in FILES:
            start, rows = _files(name, spec, wish, stateful=stateful)
        else:
            start, rows = _other(name, spec, wish)
        new_starts.append(start)
        moved += rows
    return Starts(tuple(new_starts), tuple(moved), stateful)


def _read(logs: CheckpointLogs, names: Sequence[str]) -> Mapping[str, Any]:
    """Return how far each source was read: up to the newest commit, else where it began.

    A batch that started but did not commit counts as unread: otherwise, partitions whose position
    is not changed would skip its records.
    """
    committed = logs.last_commit()
    offsets = logs.offsets(committed) if committed is not None else None
    if offsets is not None:
        return offsets.sources
    began = {}
    for name in names:
        with suppress(NotPlain, OSError, UnicodeDecodeError):
            text = read_file(logs.root / "sources" / name / "0", within=logs.root)
            began[name] = first_offsets(text or "")
    return began


def _read_positions(
    query: Query, logs: CheckpointLogs | None, sources: list[Any], wish: WantedStart
) -> tuple[Mapping[str, Any], bool]:
    """Return how far each source was read, and whether the query starts at batch 0."""
    if logs is None:
        if not sources and wish.to != "earliest":
            raise NotAllowed(
                f"The sources of {query.name} are in its code, and its checkpoint is not "
                "accessible.",
                way_out=(
                    "Reset to earliest: the query starts at the position specified in its code."
                ),
            )
        return {str(index): {} for index in range(len(sources))}, True
    newest = max(logs.begun(), default=None)
    offsets = logs.offsets(newest) if newest is not None else None
    if offsets is None:
        raise NotAllowed(f"{query.name} has not started a batch yet.", way_out="Start it instead.")
    return offsets.sources, is_stateful(logs)


# --- kafka --------------------------------------------------------------------------------


def _kafka(
    name: str, end: Mapping[str, Any], spec: Mapping[str, Any], wish: WantedStart
) -> tuple[SourceStart, list[MovedSource]]:
    before = {(topic, int(p)): at for topic, parts in end.items() for p, at in parts.items()}
    queries_broker = wish.to != "offsets"
    sources = kafka_sources({"sources": [spec]}) if spec.get("format") == "kafka" else ()
    if not sources and queries_broker:
        raise NotAllowed(
            f"Source {name} is read by the query's own code: its broker is unknown.",
            way_out="Reset to specific offsets, one for each partition.",
        )
    current = _ends(sources[0], wish) if sources else {}
    after = (
        {at: ends_and_start[1] for at, ends_and_start in current.items()}
        if queries_broker
        else _requested_offsets(before, current, wish)
    )
    moved = [
        _partition(name, at, before.get(at), after[at], current[at][0] if at in current else None)
        for at in sorted(after)
    ]
    offset: dict[str, dict[str, int]] = {}
    for (topic, partition), number in sorted(after.items()):
        offset.setdefault(topic, {})[str(partition)] = number
    return SourceStart(name, offset), moved


def _ends(source: KafkaSource, wish: WantedStart) -> dict[At, tuple[PartitionEnds, int]]:
    """Return each partition's ends and its start, for every `to` except offsets."""
    references = local_references()
    at_ms = int(wish.at.timestamp() * 1000) if wish.to == "time" and wish.at else None
    try:
        options = client_options(references.resolve_all(dict(source.brokers)))
        with closing(BrokerReader(options)) as reader:
            starts_at_time = reader.at_time([source.wanted], at_ms)
    except (Unreachable, Unusable, ReferenceMissing) as error:
        raise Unavailable(
            f"The broker of source {source.name} is not responding: {references.mask(str(error))}",
            way_out="Try again when it responds, or reset to offsets.",
        ) from error
    if not starts_at_time:
        raise NotAllowed(f"Source {source.name} currently has no partitions.")
    if wish.to in ("earliest", "latest"):
        return {at: (ends, getattr(ends, wish.to)) for at, (ends, _) in starts_at_time.items()}
    return starts_at_time


def _requested_offsets(
    before: Mapping[At, int], current: Mapping[At, tuple[PartitionEnds, int]], wish: WantedStart
) -> dict[At, int]:
    """Return the requested offsets; partitions not named keep their position."""
    after = dict(before)
    problems = []
    for topic, parts in wish.offsets.items():
        for number, offset in parts.items():
            at = (topic, int(number))
            field_name, ends = f"offsets.{topic}.{number}", current.get(at)
            if at not in before and at not in current:
                problems.append(
                    Problem(field_name, str(offset), "is not a partition of the query.")
                )
            elif ends is not None and not ends[0].earliest <= offset <= ends[0].latest:
                reach = f"The broker has {ends[0].earliest} to {ends[0].latest}."
                problems.append(Problem(field_name, str(offset), "is not on the broker.", reach))
            after[at] = offset
    if not wish.offsets:
        problems.append(Problem("offsets", "", "is empty.", 'Write {"topic": {"0": 12}}.'))
    if problems:
        raise Invalid(problems)
    return after


def _partition(
    name: str, at: At, before: int | None, after: int, ends: PartitionEnds | None
) -> MovedSource:
    note = ""
    if ends is not None and after < ends.earliest:
        note = f"deleted: the broker starts at {ends.earliest}"
    start = before if before is not None else after
    return MovedSource(
        source=name,
        what=f"{at[0]}-{at[1]}",
        before=before,
        after=after,
        repeated=max(0, start - after),
        skipped=max(0, after - start),
        note=note,
    )


# --- files and the rest --------------------------------------------------------------------


def _files(
    name: str, spec: Mapping[str, Any], wish: WantedStart, *, stateful: bool
) -> tuple[SourceStart, list[MovedSource]]:
    path = str((spec.get("options") or {}).get("path", ""))
    if wish.to == "offsets":
        raise NotAllowed(
            f"Source {name} reads files, which have no offsets.",
            way_out="Reset to earliest, latest or a time.",
        )
    if wish.to == "earliest":
        count = len(files_of_source(path)) if path else None
        return SourceStart(name), [
            MovedSource(name, path or "files", None, None, count, 0, "every file")
        ]
    if stateful:
        raise NotAllowed(
            f"Source {name} reads files into state: it can only start with its first file, "
            "because Spark has no state without the batches that built it.",
            way_out=ELSEWHERE,
        )
    if not path:
        raise NotAllowed(
            f"Source {name} is read by the query's own code: its folder is unknown.",
            way_out="Reset to earliest.",
        )
    files = files_of_source(path)
    limit = int(wish.at.timestamp() * 1000) if wish.to == "time" and wish.at else None
    passed = tuple(file for file in files if limit is None or file[1] < limit)
    note = "files written from then on" if limit is not None else "files that arrive from now on"
    return (
        SourceStart(name, passed=passed),
        [MovedSource(name, path, None, None, len(files) - len(passed), len(passed), note)],
    )


def _other(
    name: str, spec: Mapping[str, Any], wish: WantedStart
) -> tuple[SourceStart, list[MovedSource]]:
    what = str(spec.get("format", "source"))
    if wish.to != "earliest":
        raise NotAllowed(
            f"Source {name} ({what}) can only be read from its beginning.",
            way_out="Reset to earliest.",
        )
    return SourceStart(name), [
        MovedSource(name, what, None, None, None, 0, "as if it had never run")
    ]
