"""Inspect a query's data: a batch's records, and the rows of a state operator.

Records are personal data: like the rows of a state inspection, they never reach the
database, are shown to authors for an hour, and are then removed.

State contains personal data, so the rows never reach the database: they stay in a file that only
the drivers' account can read, are shown to authors for an hour, and are then removed. Only numbers
are stored with the operation.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from listeners.loops.backlogs import loop_errors
from listeners.models import Progress
from queries.checkpoints import batches, source_logs
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import remove
from queries.domain.definitions.allowed_paths import fixed_part
from queries.domain.definitions.locations import NotALocation
from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.domain.kafka.offsets import EARLIEST, OffsetRange
from queries.domain.probes.hot_keys import keys_sql
from queries.domain.probes.questions import STATE_NUMBERS, BatchRead, RecordsTask, XrayTask
from queries.domain.readings import counted
from queries.domain.sparks import FEATURES_SINCE, Feature, has_feature
from queries.domain.states import DriverKind, DriverState, Verb
from queries.launchers.base import Launcher
from queries.models.definitions import Query
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.selectors.checkpoints import snapshot_of
from queries.selectors.kafka.sources import kafka_sources
from queries.selectors.probes import spark_of_query
from queries.selectors.rows import newest_revisions
from queries.services.checkpoints.remote import copy_to_this_host, fresh_logs
from queries.services.probes import probe_steps
from queries.services.probes.probe_steps import LIMIT, ROWS, SHOWN_FOR, rows_problems
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
    begin,
)

PROBE_LIMIT_S = 150.0
SEARCH_S = 60.0
LOOKED_AT = 10_000  # records per source
SAMPLED = 100_000  # rows among which keys are counted


def begin_records(
    *, query: Query, batch: int, actor: str, now: datetime, rows: int = ROWS
) -> Operation:
    """Look at a batch's records; raise `Invalid`, or `NotAllowed` if they cannot be read."""
    problems = []
    if batch < 0:
        problems.append(Problem("batch", str(batch), "is not a valid batch number."))
    problems += rows_problems(rows)
    if problems:
        raise Invalid(problems)
    _require_sources(_spec(query))
    return begin(
        RECORD_SEARCH, query=query, arguments={"batch": batch, "rows": rows}, actor=actor, now=now
    )


def records_can_be_read(query: Query) -> bool:
    """Return whether the last run's definition declares its sources, so a probe can read them."""
    return _spec(query).get("kind") == "sql"


def records_of(operation: Operation, *, launcher: Launcher, now: datetime) -> dict[str, Any] | None:
    """Return the records that the probe found; None once they are removed."""
    findings = probe_steps.shown(operation, launcher=launcher, now=now)
    return findings.records if findings else None


def reads_of(
    spec: Mapping[str, Any],
    ranges: Iterable[OffsetRange],
    files: Iterable[str],
    *,
    began: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> list[BatchRead]:
    """Return the part that a batch read of each source in the definition; others are omitted.

    `began` contains the offsets at which each source in the log began.
    """
    start: defaultdict[str, Any] = defaultdict(lambda: defaultdict(dict))
    end: defaultdict[str, Any] = defaultdict(lambda: defaultdict(dict))
    for offset_range in ranges:
        for source in kafka_sources(spec):
            if source.wanted.matches(offset_range.topic):
                start[source.name][offset_range.topic][str(offset_range.partition)] = _start(
                    offset_range, began
                )
                end[source.name][offset_range.topic][str(offset_range.partition)] = offset_range.end
                break
    reads = [BatchRead(name, start=start[name], end=end[name]) for name in start]
    files_by_source = defaultdict(list)
    roots = _folders(spec)
    for path in files:
        directory = fixed_part(path)
        for name, folder in roots.items():
            if f"{directory}/".startswith(f"{folder}/"):
                files_by_source[name].append(path)
                break
    return reads + [BatchRead(name, files=tuple(paths)) for name, paths in files_by_source.items()]


def _start(offset_range: OffsetRange, began: Mapping[str, Mapping[str, Mapping[str, int]]]) -> int:
    """Return where the read of a partition began: if it was added later, at its first offset."""
    if offset_range.start is not None:
        return offset_range.start
    return (
        began.get(offset_range.source, {})
        .get(offset_range.topic, {})
        .get(str(offset_range.partition), EARLIEST)
    )


def _folders(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return each file source's folder, by source name."""
    folders = {}
    for source in spec.get("sources") or ():
        for key, value in (source.get("options") or {}).items():
            if key.lower() == "path":
                try:
                    folders[source["name"]] = fixed_part(value)
                except NotALocation:
                    continue
    return folders


def _spec(query: Query) -> dict[str, Any]:
    """Return the definition that ran last, with its values for parameters; or else the newest."""
    run = query.runs.order_by("-pk").select_related("revision").first()
    revision = run.revision if run else newest_revisions([query.pk])[query.pk]
    run_params = (run.params if run else None) or {}
    return {**revision.spec, "params": {**(revision.spec.get("params") or {}), **run_params}}


def _require_sources(spec: Mapping[str, Any]) -> None:
    if spec.get("kind") != "sql":
        raise NotAllowed(
            "Its sources are defined in Python, so Headgate cannot read the records of a batch.",
            way_out="Read the files or offsets listed on the batch's page.",
        )


# --- the steps ------------------------------------------------------------------------


def _find(context: StepContext) -> StepResult:
    checkpoint = probe_steps.checkpoint_of(context)
    logs = fresh_logs(context, checkpoint.location)
    if isinstance(logs, StepResult):
        return logs
    number, spec = context.arguments["batch"], _spec(context.query)
    batch = batches.batch_by_number(logs, number)
    if batch is None:
        raise NotAllowed(f"The checkpoint does not contain batch {number}.")
    files = [file.path for file in batches.files_of(logs, number)]
    began = {
        offset_range.source: source_logs.first_offsets(logs.root / "sources" / offset_range.source)
        for offset_range in batch.ranges
        if offset_range.start is None
    }
    reads = reads_of(spec, batch.ranges, files, began=began)
    if not reads and batches.read_nothing(logs, number):
        raise NotAllowed(
            f"Batch {number} read no new records: Spark ran it to advance the watermark.",
            way_out="Check the preceding batches: their records are in its state.",
        )
    if not reads:
        raise NotAllowed(
            f"The log does not show what batch {number} read: its sources keep no log, or the "
            "preceding entry was purged.",
        )
    context.result["reads"] = [
        {
            "source": offset_range.source,
            "files": offset_range.files,
            "start": offset_range.start,
            "end": offset_range.end,
        }
        for offset_range in reads
    ]
    return StepResult(True, f"{len(reads)} of {len(spec['sources'])} sources")


def _launch(context: StepContext) -> StepResult:
    spec, batch = _spec(context.query), context.arguments["batch"]
    progress = Progress.objects.filter(query=context.query.pk, batch=batch).order_by("-pk").first()
    task = RecordsTask(
        spec=spec,
        reads=tuple(
            BatchRead(
                source_read["source"],
                tuple(source_read["files"]),
                source_read["start"],
                source_read["end"],
            )
            for source_read in context.result["reads"]
        ),
        rows=context.arguments["rows"],
        looked_at=LOOKED_AT,
        limit_s=PROBE_LIMIT_S,
        search_s=SEARCH_S,
        keys_sql=keys_sql(spec["sql"]),
        sampled=SAMPLED,
        batch_rows=progress.num_input_rows if progress else 0,
    )
    return probe_steps.launch(context, lambda _: task)


def _read(context: StepContext) -> StepResult:
    answer = probe_steps.await_read(context, "records", "The records")
    if isinstance(answer, StepResult):
        return answer
    assert answer.records is not None
    failing = answer.records["failing"]
    context.result |= {
        "looked_at": {
            source["source"]: source["looked_at"] for source in answer.records["sources"]
        },
        "searched": answer.records["searched"],
        "failing": {name: failing[name] for name in ("source", "record")} if failing else None,
        "took_ms": answer.took_ms,
    }
    return DONE


RECORD_SEARCH = Procedure(
    Verb.RECORDS,
    (
        ProcedureStep("Find out what the batch read", _find),
        ProcedureStep("Wait for a slot on the host", probe_steps.take_slot),
        ProcedureStep("Launch a probe driver", _launch),
        ProcedureStep("Read the records", _read),
        ProcedureStep("End the probe driver", probe_steps.put_away),
    ),
    limit=LIMIT,
    undo=probe_steps.forget,
)


logger = logging.getLogger(__name__)
_forget = loop_errors("prune", logger)

XRAY_LIMIT_S = 120.0
_SIDES = ("", "left", "right")


def begin_xray(
    *,
    query: Query,
    actor: str,
    now: datetime,
    operator: int = 0,
    store: str = "default",
    side: str = "",
    variable: str = "",
    contains: str = "",
    rows: int = ROWS,
    snapshot: int | None = None,
) -> Operation:
    """Read the state of one operator, from the current checkpoint or a snapshot.

    `contains` is a string that the key's JSON form must contain. Raises `Invalid`, `Missing` if the
    snapshot does not exist, `NotAllowed` on a Spark that cannot read state.
    """
    problems = rows_problems(rows)
    if operator < 0:
        problems.append(Problem("operator", str(operator), "is not a valid operator number."))
    if side not in _SIDES:
        problems.append(Problem("side", side, "is neither left nor right."))
    if problems:
        raise Invalid(problems)
    if not has_feature(spark := spark_of_query(query), Feature.STATE_INSPECTION):
        raise NotAllowed(
            f"Spark {spark} cannot read the state in a checkpoint.",
            way_out=f"Run the application on Spark {FEATURES_SINCE[Feature.STATE_INSPECTION]} or "
            "newer.",
        )
    if snapshot is not None:
        snapshot_of(query, snapshot)
    arguments: dict[str, Any] = {"operator": operator, "rows": rows, "snapshot": snapshot}
    arguments |= {k: v for k, v in (("side", side), ("variable", variable)) if v}
    if store != "default":
        arguments["store"] = store
    if contains:
        # This name gets it masked wherever arguments are shown: it may be personal data.
        arguments["private_key"] = contains[:200]
    return begin(XRAY, query=query, arguments=arguments, actor=actor, now=now)


def rows_of(operation: Operation, *, launcher: Launcher, now: datetime) -> dict[str, Any] | None:
    """Return a state inspection's findings with its rows; None once they are removed."""
    findings = probe_steps.shown(operation, launcher=launcher, now=now)
    return findings.state if findings else None


def forget_old_results(*, launcher: Launcher, now: datetime) -> None:
    """Remove the rows of this host's state inspections that are past their display time."""
    over = Driver.objects.filter(
        host=settings.HEADGATE_HOST,
        kind=DriverKind.PROBE,
        state=DriverState.ENDED,
        ended_at__lt=now - SHOWN_FOR,
    ).select_related("application")
    for driver in over.filter(ended_at__gt=now - timedelta(days=2)):
        with _forget.isolate_errors(f"probe {driver.epoch} of {driver.application.name}"):
            launcher.forget_result(driver.application.name, driver.epoch)


# --- the steps ------------------------------------------------------------------------


def _copy(context: StepContext) -> StepResult:
    checkpoint = probe_steps.checkpoint_of(context)
    context.result["checkpoint"] = checkpoint.pk
    source = checkpoint.location
    if (snapshot_id := context.arguments.get("snapshot")) is not None:
        source = snapshot_of(context.query, snapshot_id).location
    folder = probe_steps.folder(context, checkpoint)
    remove(folder)
    copied = copy_to_this_host(context, source, folder / "copy")
    if isinstance(copied, StepResult):
        return copied
    logs = CheckpointLogs.at((folder / "copy").as_uri())
    if not (logs.root / "state").is_dir():
        raise NotAllowed(
            f"{context.query.name} has no state in its checkpoint.",
            way_out="Only queries that aggregate, join streams or drop duplicates have state.",
        )
    commit = logs.commit(copied.batch)
    context.result |= {"batch": copied.batch, "state_format": 1}
    if commit is not None and (commit.version == "v2" or commit.state_ids):
        context.result["state_format"] = 2
    return StepResult(True, f"Batch {copied.batch}, {counted(copied.files, 'file')}")


def _launch_xray(context: StepContext) -> StepResult:
    copy_folder = probe_steps.folder(context, probe_steps.checkpoint_of(context)) / "copy"
    arguments = context.arguments
    task = XrayTask(
        checkpoint=copy_folder.as_uri(),
        limit_s=XRAY_LIMIT_S,
        rows=arguments["rows"],
        operator=arguments["operator"],
        store=arguments.get("store", "default"),
        side=arguments.get("side", ""),
        variable=arguments.get("variable", ""),
        contains=arguments.get("private_key", ""),
        state_format=context.result["state_format"],
    )
    return probe_steps.launch(context, lambda _: task)


def _read_state(context: StepContext) -> StepResult:
    answer = probe_steps.await_read(context, "state", "The state")
    if isinstance(answer, StepResult):
        return answer
    assert answer.state is not None
    context.result |= {name: answer.state[name] for name in STATE_NUMBERS}
    context.result["took_ms"] = answer.took_ms
    return DONE


XRAY = Procedure(
    Verb.XRAY,
    (
        ProcedureStep("Copy the checkpoint", _copy),
        ProcedureStep("Wait for a slot on the host", probe_steps.take_slot),
        ProcedureStep("Launch a probe driver", _launch_xray),
        ProcedureStep("Read the state", _read_state),
        ProcedureStep("Delete the copy", probe_steps.tidy),
    ),
    limit=LIMIT,
    undo=probe_steps.forget,
)
