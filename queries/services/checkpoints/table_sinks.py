"""Predict what a query's table does with batches that a rewind, reset, clone or go-on writes again.

The numbers are read from the table's log: on a local disk during the request, on a storage by this
host's worker, as with the log of a file sink (`file_sinks`).
"""

import json
from collections.abc import Callable
from datetime import datetime

import orjson

from headgate_ground.files import read_file, replace_file
from headgate_ground.tolerant.values import count
from listeners.models import Latest
from queries.domain.checkpoints.lock_files import local_path
from queries.domain.definitions.data_roots import unnamed_places
from queries.domain.definitions.locations import on_yarn
from queries.domain.errors import NotAllowed, in_words
from queries.domain.tables.places import DELTA, TablePlace, described_table, sink_table
from queries.domain.tables.replay import InTable, in_delta, in_iceberg, unknown
from queries.models.definitions import Query
from queries.selectors.hosts import mirror_of
from queries.selectors.tables.sources import conf_of
from queries.selectors.triggers.cores import newest_application_spec
from queries.services.checkpoints.remote import fresh_mirror, readable_logs
from queries.services.checkpoints.switching import current
from queries.services.checkpoints.table_storage import Unknown, insist_allowed, open_checkpoints
from queries.storage.hadoop import StorageFailed
from queries.storage.local_files import LocalFiles
from queries.storage.remote_checkpoint import Mirror
from queries.storage.table_logs import Files, NoTable, Unpack, read_delta, read_iceberg

#: Newest commits that are searched for a query's batches in a Delta table without checksums.
SEARCHED = 500
_FOUND = "in_table.json"


def table_of(query: Query) -> TablePlace | None:
    """Return the table that the query's newest run writes; None for other sinks."""
    run = query.runs.select_related("revision").order_by("-epoch").first()
    revision = run.revision if run else query.revisions.order_by("-number").first()
    if revision is None:
        return None
    if not revision.spec.get("sink"):  # of code
        latest = Latest.objects.filter(query=query.pk).first()
        sink = (latest.progress or {}).get("sink") if latest else None
        place = described_table((sink or {}).get("description"))
    else:
        place = sink_table(revision.spec, conf_of(query.application))
    if place is None or not completed_on_yarn(query, place.name):
        return place
    problem = in_words([on_yarn("path", place.name)])
    return TablePlace(place.format, place.name, problem=f"The table's path {problem}")


def completed_on_yarn(query: Query, path: str) -> bool:
    """Return whether only a YARN cluster's configuration says on which file system a path is."""
    if next(unnamed_places([("path", path)]), None) is None:
        return False
    return newest_application_spec(query.application).master == "yarn"


def effects(
    query: Query,
    place: TablePlace,
    say: Callable[[str, InTable], list[str]],
    *,
    now: datetime,
) -> list[str]:
    """Return the sentences of `say` about a table and the query's batches in it.

    Raises `NotReadYet` for a table on a storage that has not been read recently.
    """
    try:
        if is_remote(place):
            found = _mirrored(query, place, now)
        else:
            insist_allowed(place, query.application)
            found = _find(LocalFiles(), place, query_id(query))
    except (Unknown, NoTable, StorageFailed, OSError) as error:
        return unknown(place.name, str(error))
    return say(place.name, found)


def is_remote(place: TablePlace | None) -> bool:
    """Return whether a table is on a storage."""
    return place is not None and bool(place.location) and local_path(place.location) is None


def mirror_location(place: TablePlace) -> str:
    """Return the name under which a table's batches are mirrored."""
    return f"{place.location}/_batches"


def fill(query: Query, place: TablePlace, mirror: Mirror, files: Files, *, now: datetime) -> bool:
    """Store the query's batches in a table on a storage; return True, as there is news."""
    told: dict[str, str | int | None]
    try:
        insist_allowed(place, query.application)
        identity = query_id(query)
        found = _find(files, place, identity, open_checkpoints)
        told = {"query": identity, "newest": found.newest, "certain": found.certain}
    except (Unknown, NoTable, NotAllowed) as error:
        told = {"problem": str(error)}
    mirror.checkpoint.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(mirror.checkpoint / _FOUND, json.dumps(told), durable=False)
    mirror.note("", read_at=now)
    return True


def query_id(query: Query) -> str:
    """Return the id that Spark has given to the query, from its checkpoint.

    Raises `Unknown` if there is none, and `NotReadYet`.
    """
    logs = readable_logs(current(query).location, fresh_for=None)
    try:
        told = orjson.loads(read_file(logs.root / "metadata", within=logs.root) or "{}")
        identity = told.get("id") if isinstance(told, dict) else None
    except (OSError, ValueError):
        identity = None
    if not isinstance(identity, str):
        raise Unknown("the query's ID is not in its checkpoint.")
    return identity


def _mirrored(query: Query, place: TablePlace, now: datetime) -> InTable:
    location = mirror_location(place)
    folder = fresh_mirror(location, query.application, now=now, what="table's log")
    told = json.loads(read_file(folder / _FOUND) or "{}")
    if told.get("problem"):
        raise NoTable(str(told["problem"]))
    if told.get("query") != query_id(query):
        raise Unknown(
            "the table's log was read for the query's former ID. Try again in a few seconds."
        )
    return InTable(count(told.get("newest")), told.get("certain") is True)


def _find(files: Files, place: TablePlace, identity: str, unpack: Unpack | None = None) -> InTable:
    if place.format != DELTA:
        return in_iceberg(identity, read_iceberg(files, place.location).table)
    log = read_delta(files, place.location, unpack=unpack)
    if log.state.txns is None:
        oldest = max(0, log.newest - SEARCHED + 1)
        log = read_delta(files, place.location, needed=[oldest], known=log)
        if log.earliest is not None:  # older commits were removed
            log = read_delta(files, place.location, needed=[log.earliest], known=log)
    return in_delta(identity, log.state, log.commits.values())


def table_mirror(place: TablePlace) -> Mirror:
    """Return this host's mirror of the batches in a table on a storage."""
    return mirror_of(mirror_location(place))
