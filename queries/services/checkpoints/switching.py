"""Switch a stopped query to another checkpoint, and predict what its table does with repeated
batches.

The old row is kept. The new directory is built next to the old one, which stays unchanged byte for
byte. Its location is decided when the operation is requested, so that a repeated step uses the same
one.

The numbers are read from the table's log: on a local disk during the request, on remote storage by
this host's worker, as with the log of a file sink (`file_sinks`).
"""

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import orjson
from django.db import transaction

from controlplane.nudge import changed
from headgate_ground.files import read_file, replace_file
from headgate_ground.tolerant import count
from listeners.models import Latest
from queries.checkpoints.snapshot import CannotCopy
from queries.domain.checkpoints.ownership import local_path
from queries.domain.definitions.allowed_paths import unnamed_places
from queries.domain.definitions.locations import checkpoint_problem, on_yarn
from queries.domain.errors import Conflict, Invalid, NotAllowed, in_words
from queries.domain.kafka.topic_ids import as_json, as_of, ids_of
from queries.domain.reasons import Because
from queries.domain.states import Desired, Reason, RunOutcome
from queries.domain.tables.places import DELTA, TablePlace, described_table, sink_table
from queries.domain.tables.replay import InTable, in_delta, in_iceberg, unknown
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Run
from queries.selectors.definitions.definitions import held_checkpoints
from queries.selectors.hosts import mirror_of
from queries.selectors.tables import conf_of
from queries.selectors.triggers.cores import newest_application_spec
from queries.services.changes import record
from queries.services.checkpoints.remote import fresh_mirror, readable_logs
from queries.services.checkpoints.storage_jvms import Unknown, insist_allowed, open_checkpoints
from queries.services.procedures.engine import DONE, StepContext, StepResult, waiting
from queries.services.supervision.operation_rows import schedule_reconcile
from queries.services.supervision.operations import locked
from queries.storage.hadoop import LocalFiles, StorageFailed
from queries.storage.remote_checkpoint import Mirror
from queries.storage.table_logs import Files, NoTable, Unpack, read_delta, read_iceberg

#: The suffix that `beside` appends to a name; removed before the next one is appended.
_SUFFIX = re.compile(r"\.(r\d+|reset)-\d{8}T\d{6}")


def current(query: Query) -> Checkpoint:
    """Return the query's current checkpoint."""
    return Checkpoint.objects.get(query=query, retired_at=None)


def local_folder_of(location: str) -> Path:
    """Return the folder of a local location."""
    path = local_path(location)
    if path is None:
        raise NotAllowed(f"{location} is not on this host.")
    return Path(path)


def beside(location: str, kind: str, now: datetime) -> str:
    """Return a location next to another, named by its purpose: `delays.r40-20260302T120000`.

    Raises `Invalid` if a query already uses that location, or one that contains it.
    """
    parent, _, name = location.rpartition("/")
    sibling = f"{parent}/{_SUFFIX.sub('', name)}.{kind}-{now:%Y%m%dT%H%M%S}"
    problem = checkpoint_problem(sibling, held_checkpoints())
    if problem is not None:
        raise Invalid([problem])
    return sibling


def switch(
    context: StepContext,
    reason: Reason,
    detail: Because,
    *,
    batch: int | None = None,
    host: str = "",
) -> StepResult:
    """Retire the query's checkpoint and switch the query to the one that the operation built.

    `batch` is the batch to continue after; None if the sources start elsewhere, with the topics
    that exist at that time. `host` is the host that takes over the application; "" if it does not
    move.
    """
    location = context.arguments["location"]
    path = local_path(location)  # on a storage, the step that built it has just succeeded
    if path is not None and not Path(path).exists():
        way_out = f"Request the {context.operation.verb} again."
        raise CannotCopy("The new checkpoint is gone.", way_out=way_out)
    with transaction.atomic():
        row = locked(context.query)
        context.insist()
        old = current(row)
        if old.location == location:
            return DONE  # already done by a worker that died before recording it
        if Run.objects.filter(query=row, outcome=RunOutcome.OPEN).exists():
            return waiting("a run is still open")
        if row.desired != Desired.STOPPED:
            raise Conflict(f"{row.name} was started in the meantime.", way_out="Request it again.")
        # Decisions on rows read before this moment fail the compare-and-set.
        schedule_reconcile(row.application_id, context.now)
        Checkpoint.objects.filter(pk=old.pk).update(retired_at=context.now)
        ids = as_json(as_of(ids_of(old.topic_ids), batch)) if batch is not None else {}
        Checkpoint.objects.create(
            query=row,
            location=location,
            by_default=old.by_default,
            created_at=context.now,
            built_from=old,
            topic_ids=ids,
        )
        if host:
            Application.objects.filter(pk=row.application_id).update(host=host)
        about = {"application": row.application, "query": row, "detail": detail}
        who = {"actor": context.operation.actor, "operation": context.operation}
        before, after = _name(old.location), _name(location)
        record("checkpoint", before, after, reason, now=context.now, **about, **who)
        changed(f"query:{row.pk}", "checkpoints")
    return DONE


def _name(location: str) -> str:
    name = location.rpartition("/")[2]
    return name if len(name) <= 40 else f"…{name[-39:]}"


#: Newest commits that are searched for a query's batches in a Delta table without checksums.
SEARCHED = 500
_IN_TABLE = "in_table.json"


def table_of(query: Query) -> TablePlace | None:
    """Return the table that the query's newest run writes; None for other sinks."""
    run = query.runs.select_related("revision").order_by("-epoch").first()
    revision = run.revision if run else query.revisions.order_by("-number").first()
    if revision is None:
        return None
    if not revision.spec.get("sink"):  # of code
        latest = Latest.objects.filter(query=query.pk).first()
        sink = (latest.progress or {}).get("sink") if latest else None
        table = described_table((sink or {}).get("description"))
    else:
        table = sink_table(revision.spec, conf_of(query.application))
    if table is None or not completed_on_yarn(query, table.name):
        return table
    problem = in_words([on_yarn("path", table.name)])
    return TablePlace(table.format, table.name, problem=f"The table's path {problem}")


def completed_on_yarn(query: Query, path: str) -> bool:
    """Return whether only a YARN cluster's configuration says on which file system a path is."""
    if next(unnamed_places([("path", path)]), None) is None:
        return False
    return newest_application_spec(query.application).master == "yarn"


def effects(
    query: Query,
    table: TablePlace,
    describe: Callable[[str, InTable], list[str]],
    *,
    now: datetime,
) -> list[str]:
    """Return the sentences of `describe` about a table and the query's batches in it.

    Raises `NotReadYet` for a table on remote storage that has not been read recently.
    """
    try:
        in_table = _in_table(query, table, now)
    except (Unknown, NoTable, StorageFailed, OSError) as error:
        return unknown(table.name, str(error))
    return describe(table.name, in_table)


def refuse_skipped_state(query: Query, batch: int, *, now: datetime) -> None:
    """Raise `NotAllowed` if batches after `batch` would be skipped that the state depends on.

    A `batch` of -1 stands for a start at batch 0 with an empty state. Delta's sink returns before
    it executes a batch that its table has (`DeltaSink.addBatch`): the state store gets no version
    for it, and the first batch that is executed fails. Raises `NotReadYet` for a table on remote
    storage; a table that cannot be read is left to the preview, which says so.
    """
    table = table_of(query)
    if table is None or table.format != DELTA:
        return
    if not readable_logs(current(query).location, fresh_for=None).keeps_state():
        return
    try:
        newest = _in_table(query, table, now).newest
    except (Unknown, NoTable, StorageFailed, OSError):
        return
    if newest is not None and newest > batch:
        raise NotAllowed(
            f"Table {table.name} would skip batches {batch + 1:,} to {newest:,} without computing "
            f"them, because it has them: the state of {query.name} would lack them, and batch "
            f"{newest + 1:,} would fail.",
            way_out="Clone the query to a new table instead.",
        )


def _in_table(query: Query, table: TablePlace, now: datetime) -> InTable:
    if is_remote(table):
        return _mirrored(query, table, now)
    insist_allowed(table, query.application)
    return _find(LocalFiles(), table, query_id(query))


def is_remote(table: TablePlace | None) -> bool:
    """Return whether a table is on remote storage."""
    return table is not None and bool(table.location) and local_path(table.location) is None


def mirror_location(table: TablePlace) -> str:
    """Return the name under which a table's batches are mirrored."""
    return f"{table.location}/_batches"


def fill(query: Query, table: TablePlace, mirror: Mirror, files: Files, *, now: datetime) -> bool:
    """Store the query's batches in a table on remote storage; return True, as there is news."""
    document: dict[str, str | int | None]
    try:
        insist_allowed(table, query.application)
        identity = query_id(query)
        in_table = _find(files, table, identity, open_checkpoints)
        document = {"query": identity, "newest": in_table.newest, "certain": in_table.certain}
    except (Unknown, NoTable, NotAllowed) as error:
        document = {"problem": str(error)}
    mirror.checkpoint.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(mirror.checkpoint / _IN_TABLE, json.dumps(document), durable=False)
    mirror.note("", read_at=now)
    return True


def query_id(query: Query) -> str:
    """Return the id that Spark has given to the query, from its checkpoint.

    Raises `Unknown` if there is none, and `NotReadYet`.
    """
    logs = readable_logs(current(query).location, fresh_for=None)
    try:
        metadata = orjson.loads(read_file(logs.root / "metadata", within=logs.root) or "{}")
        identity = metadata.get("id") if isinstance(metadata, dict) else None
    except (OSError, ValueError):
        identity = None
    if not isinstance(identity, str):
        raise Unknown("the query's ID is not in its checkpoint.")
    return identity


def _mirrored(query: Query, table: TablePlace, now: datetime) -> InTable:
    location = mirror_location(table)
    folder = fresh_mirror(location, query.application, now=now, what="table's log")
    document = json.loads(read_file(folder / _IN_TABLE) or "{}")
    if document.get("problem"):
        raise NoTable(str(document["problem"]))
    if document.get("query") != query_id(query):
        raise Unknown(
            "the table's log was read for the query's former ID. Try again in a few seconds."
        )
    return InTable(count(document.get("newest")), document.get("certain") is True)


def _find(files: Files, table: TablePlace, identity: str, unpack: Unpack | None = None) -> InTable:
    if table.format != DELTA:
        return in_iceberg(identity, read_iceberg(files, table.location).table)
    log = read_delta(files, table.location, unpack=unpack)
    if log.state.txns is None:
        oldest = max(0, log.newest - SEARCHED + 1)
        log = read_delta(files, table.location, needed=[oldest], earlier_log=log)
        if log.earliest is not None:  # older commits were removed
            log = read_delta(files, table.location, needed=[log.earliest], earlier_log=log)
    return in_delta(identity, log.state, log.commits.values())


def table_mirror(table: TablePlace) -> Mirror:
    """Return this host's mirror of the batches in a table on remote storage."""
    return mirror_of(mirror_location(table))
