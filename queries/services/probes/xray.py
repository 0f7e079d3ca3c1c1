"""X-ray a query's state: a probe driver reads a state operator's rows from a copy.

State contains personal data, so the rows never reach the database: they stay in a file that only
the drivers' account can read, are shown to authors for an hour, and are then removed. Only numbers
are stored with the operation.
"""

import logging
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from listeners.loops.troubles import loop_errors
from queries.checkpoints.logs import CheckpointLogs
from queries.checkpoints.snapshot import remove
from queries.domain.counts import counted
from queries.domain.errors import Invalid, NotAllowed, Problem
from queries.domain.probes.questions import STATE_NUMBERS, XrayTask
from queries.domain.states import DriverKind, DriverState, Verb
from queries.launchers.base import Launcher
from queries.models.definitions import Query
from queries.models.drivers import Driver
from queries.models.history import Operation
from queries.selectors.checkpoints import snapshot_of
from queries.services.checkpoints.remote import copy_to_this_host
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

logger = logging.getLogger(__name__)
_forget = loop_errors("prune", logger)

PROBE_LIMIT_S = 120.0
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

    `contains` is a text that the key's JSON form must contain. Raises `Invalid`, `Missing` if the
    snapshot does not exist.
    """
    problems = rows_problems(rows)
    if operator < 0:
        problems.append(Problem("operator", str(operator), "is not a valid operator number."))
    if side not in _SIDES:
        problems.append(Problem("side", side, "is neither left nor right."))
    if problems:
        raise Invalid(problems)
    if snapshot is not None:
        snapshot_of(query, snapshot)
    arguments: dict[str, Any] = {"operator": operator, "rows": rows, "snapshot": snapshot}
    arguments |= {k: v for k, v in (("side", side), ("variable", variable)) if v}
    if store != "default":
        arguments["store"] = store
    if contains:
        # This name gets it masked wherever arguments are shown: it may be personal data.
        arguments["private_key"] = contains[:200]
    return begin(PROCEDURE, query=query, arguments=arguments, actor=actor, now=now)


def rows_of(operation: Operation, *, launcher: Launcher, now: datetime) -> dict[str, Any] | None:
    """Return an X-ray's findings with its rows; None once they are removed."""
    result = probe_steps.shown(operation, launcher=launcher, now=now)
    return result.state if result else None


def forget_old_results(*, launcher: Launcher, now: datetime) -> None:
    """Remove the rows of this host's X-rays that are past their display time."""
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


def _launch(context: StepContext) -> StepResult:
    copy_folder = probe_steps.folder(context, probe_steps.checkpoint_of(context)) / "copy"
    arguments = context.arguments
    task = XrayTask(
        checkpoint=copy_folder.as_uri(),
        limit_s=PROBE_LIMIT_S,
        rows=arguments["rows"],
        operator=arguments["operator"],
        store=arguments.get("store", "default"),
        side=arguments.get("side", ""),
        variable=arguments.get("variable", ""),
        contains=arguments.get("private_key", ""),
        state_format=context.result["state_format"],
    )
    return probe_steps.launch(context, lambda _: task)


def _read(context: StepContext) -> StepResult:
    answer = probe_steps.await_read(context, "state", "The state")
    if isinstance(answer, StepResult):
        return answer
    assert answer.state is not None
    context.result |= {name: answer.state[name] for name in STATE_NUMBERS}
    context.result["took_ms"] = answer.took_ms
    return DONE


PROCEDURE = Procedure(
    Verb.XRAY,
    (
        ProcedureStep("Copy the checkpoint", _copy),
        ProcedureStep("Wait for a slot on the host", probe_steps.take_slot),
        ProcedureStep("Launch a probe driver", _launch),
        ProcedureStep("Read the state", _read),
        ProcedureStep("Delete the copy", probe_steps.tidy),
    ),
    limit=LIMIT,
    undo=probe_steps.forget,
)
