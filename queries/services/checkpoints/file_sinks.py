"""Let the log of a query's file sink follow when its checkpoint is switched.

A sink on a local disk is changed directly, one on remote storage through the application's storage
JVM, wherever the checkpoint is.
"""

import re
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import TypeVar

from controlplane.nudge import read_sink_soon
from listeners.models import Latest
from queries.checkpoints.file_sink import ASIDE, LOG, FileSink, SinkLog
from queries.domain.definitions.locations import NotALocation, canonical, local_path, on_yarn
from queries.domain.definitions.spec import FILES
from queries.domain.errors import NotAllowed
from queries.domain.hosts import Mode
from queries.launchers.base import Launcher
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.selectors.hosts import mirror_of
from queries.services.checkpoints.remote import (
    NotReadYet,
    fresh_mirror,
    is_old,
    read_mirror,
    with_storage,
)
from queries.services.checkpoints.storage_jvms import stages
from queries.services.checkpoints.switching import (
    completed_on_yarn,
    fill,
    is_remote,
    mirror_location,
    table_mirror,
    table_of,
)
from queries.services.local_roots import allowed_paths
from queries.services.procedures.engine import DONE, StepContext, StepResult
from queries.storage.hadoop import HadoopStorage
from queries.storage.remote_checkpoint import Mirror
from queries.storage.remote_sink import MOST_LISTED, MovedAside, RemoteSink, log_in

T = TypeVar("T")

#: Spark's name for a file sink in progress events.
_DESCRIBED = re.compile(r"FileSink\[(.+)\]")


def sink_of(query: Query) -> tuple[str, str]:
    """Return the (format, path or topic) of the query's last sink; "" if unknown.

    This is the sink of the newest run, not that of a revision that has never run.
    """
    run = query.runs.select_related("revision").order_by("-epoch").first()
    revision = run.revision if run else query.revisions.order_by("-number").first()
    sink = (revision.spec.get("sink") if revision else None) or {}
    if sink:
        options = {name.lower(): value for name, value in (sink.get("options") or {}).items()}
        return sink["format"], options.get("path") or options.get("topic") or ""
    match = _DESCRIBED.search(_described(query))
    return ("file", match[1]) if match else ("", "")


def file_sink(query: Query) -> FileSink | None:
    """Return the file sink whose log belongs to the query's checkpoint; None for other sinks."""
    kind, path = sink_of(query)
    if not path or (kind != "file" and kind not in FILES) or completed_on_yarn(query, path):
        return None
    return FileSink.at(path)


def remote_sink(query: Query) -> str:
    """Return the canonical location of a file sink that is not on a local disk; "" for others.

    Raises `NotAllowed` if Headgate cannot know where the files are: Spark silently skips batches
    that the log contains, so that rows which a query writes again would be lost.
    """
    kind, path = sink_of(query)
    if not path or (kind != "file" and kind not in FILES):
        return ""
    if completed_on_yarn(query, path):
        problem = on_yarn("path", path)
        raise NotAllowed(
            f"{query.name} writes files to {path}, whose log Headgate cannot find: the path "
            f"{problem.message}",
            way_out=f"{problem.way_out} Then restart the query.",
        )
    try:
        location = canonical(path)
    except NotALocation as error:
        raise NotAllowed(
            f"{query.name} writes files to {path}, whose log Headgate cannot find: it {error}",
            way_out="Give the query a new folder for its output.",
        ) from error
    return "" if local_path(location) else location


def read_sink_if_old(query: Query, *, now: datetime) -> None:
    """Make this host's worker read the log of a sink on remote storage, unless it was just read.

    The sink is a file sink or a table.
    """
    with suppress(NotAllowed):
        table = table_of(query)
        sink_location = remote_sink(query)
        location = f"{sink_location}/{LOG}" if sink_location else ""
        if table is not None and is_remote(table):
            location = mirror_location(table)
        if location and is_old(location, now=now):
            read_sink_soon(query.pk)


def read_sink(query_id: int, *, launcher: Launcher, now: datetime) -> bool:
    """Mirror the log of a sink on remote storage; return whether to try again soon."""
    query = Query.objects.filter(pk=query_id, archived_at=None).first()
    table = table_of(query) if query else None
    if query is not None and table is not None and is_remote(table):
        mirror = table_mirror(table)
        look = partial(fill, query, table, mirror, now=now)
        return read_mirror(query, mirror, look, launcher=launcher, now=now)
    sink_location = remote_sink(query) if query else ""
    if query is None or not sink_location:
        return False
    mirror = sink_mirror(sink_location)

    def read(storage: HadoopStorage) -> bool:
        sink = RemoteSink(storage, sink_location, stages())
        sink.refresh(mirror, now=now)
        return True

    return read_mirror(query, mirror, read, launcher=launcher, now=now)


def mirrored_log(query: Query, sink_location: str, *, now: datetime) -> SinkLog:
    """Return the recent log of a sink on remote storage.

    Raises `NotReadYet` if it has not been read recently; this host's worker then reads it.
    """
    read_sink_if_old(query, now=now)
    log = f"{sink_location}/{LOG}"
    return log_in(fresh_mirror(log, query.application, now=now, what="sink's log"), sink_location)


def sink_mirror(sink_location: str) -> Mirror:
    """Return this host's mirror of the log of the sink at a canonical location."""
    return mirror_of(f"{sink_location}/{LOG}")


def check_sink(query: Query, batch: int, *, now: datetime) -> None:
    """Raise `CannotCopy` if the sink's log is known not to reach a batch.

    A log on remote storage that has not been read recently is left to the first step
    (`check_step`).
    """
    sink = file_sink(query)
    if sink is not None:
        sink.beyond(batch)
    elif sink_location := remote_sink(query):
        with suppress(NotReadYet):
            mirrored_log(query, sink_location, now=now).beyond(batch)


# --- in steps -----------------------------------------------------------------------------


def check_step(context: StepContext, batch: int | None) -> StepResult:
    """Raise if the sink's log cannot be read, or does not reach a batch; None: only read it."""

    def look(sink: RemoteSink) -> StepResult:
        with sink.copied_log() as log:
            if log is not None and batch is not None:
                log.beyond(batch)
        return DONE

    if (sink := file_sink(context.query)) is not None and batch is not None:
        sink.beyond(batch)
    sink_location = remote_sink(context.query)
    return _with_sink(context, sink_location, look) if sink_location else DONE


def roll_back(context: StepContext, batch: int) -> StepResult:
    """Reduce the sink's log and files to those of a batch; store the moved files in `sink`."""
    sink = _changeable(context, file_sink(context.query), context.query.application)
    sink_location, name = remote_sink(context.query), str(context.operation.uuid)
    if sink is not None:
        dropped = sink.put_back(batch, name)
        aside = str(sink.root / ASIDE / name)
        moved = MovedAside(len(dropped.batches), len(dropped.files))
    elif sink_location:
        aside = f"{sink_location}/{ASIDE}/{name}"
        outcome = _moved(context, sink_location, lambda remote: remote.put_back(batch, name))
        if isinstance(outcome, StepResult):
            return outcome
        moved = outcome
    else:
        return DONE
    context.result["sink"] = {"batches": moved.batches, "files": moved.files, "aside": aside}
    if not moved.searched:
        return StepResult(
            True,
            f"The sink has more than {MOST_LISTED:,} objects, so files of an interrupted batch "
            "were not searched for: readers that ignore the log may see them.",
        )
    return DONE


def move_aside(context: StepContext) -> StepResult:
    """Move the sink's log and all its files aside; store in `sink` where they are."""
    sink = _changeable(context, file_sink(context.query), context.query.application)
    sink_location, name = remote_sink(context.query), str(context.operation.uuid)
    if sink is not None:
        sink.move_aside(name)
        context.result["sink"] = {"aside": str(sink.root / ASIDE / name)}
    elif sink_location:
        outcome = _moved(context, sink_location, lambda remote: remote.move_aside(name))
        if isinstance(outcome, StepResult):
            return outcome
        context.result["sink"] = {"aside": f"{sink_location}/{ASIDE}/{name}"}
    return DONE


def seed(context: StepContext, path: str, batch: int, application: Application) -> StepResult:
    """Initialize a new file sink's log at the batch where the application's query starts."""
    sink = _changeable(context, FileSink.at(path), application)
    if sink is not None:
        sink.seed(batch)
        return DONE

    def write(remote: RemoteSink) -> StepResult:
        remote.seed(batch)
        return DONE

    return _with_sink(context, canonical(path), write, application)


def _changeable(
    context: StepContext, sink: FileSink | None, application: Application
) -> FileSink | None:
    """Return a sink that the worker may change; raise `NotAllowed` for any other.

    Drivers report where their sinks are, and can replace the folders on the path with links. If
    isolated, drivers cannot write outside their allowed paths, so a sink there is not their own.
    """
    if sink is None or context.launcher.isolation().mode is Mode.NEITHER:
        return sink
    roots = allowed_paths(application.name)
    if refused := roots.refusal(canonical(str(sink.root))):
        raise NotAllowed(f"The sink's folder {sink.root} {refused}", way_out=roots.way_out)
    return sink


def _moved(
    context: StepContext, sink_location: str, act: Callable[[RemoteSink], MovedAside]
) -> MovedAside | StepResult:
    """Do as `_with_sink`; remember how fast it was, for the next one's expected time."""
    began = time.monotonic()
    moved = _with_sink(context, sink_location, act)
    if isinstance(moved, MovedAside):
        sink_mirror(sink_location).note_copy(moved.files, time.monotonic() - began)
    return moved


def _with_sink(
    context: StepContext,
    sink_location: str,
    act: Callable[[RemoteSink], T],
    application: Application | None = None,
) -> T | StepResult:
    """Return what `act` returns, or a step to wait for until the storage JVM is up."""
    reached = application or context.query.application

    def reach(storage: HadoopStorage) -> T:
        return act(RemoteSink(storage, sink_location, stages()))

    return with_storage(context, reach, reached)


def _described(query: Query) -> str:
    latest = Latest.objects.filter(query=query.pk).first()
    sink = (latest.progress or {}).get("sink") if latest else None
    return str((sink or {}).get("description", ""))
