"""Describe to a driver the script that it must run."""

import os
from pathlib import Path

from django.db.models import Max

from queries.domain.definitions.data_roots import resolved
from queries.domain.definitions.locations import canonical, local_path
from queries.domain.definitions.spec import ApplicationSpec, Submit
from queries.domain.protocol import KnownQuery, ScriptJob
from queries.domain.states import DriverKind
from queries.launchers.base import LaunchRefused
from queries.models.applications import Application, Script
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver
from queries.services.local_roots import checkpoints_of, data_roots, follow

#: Next to its queries' checkpoints, none of which begins with a dot.
_WORK = ".work"


def script_job(
    application: Application, spec: ApplicationSpec, code_roots: tuple[str, ...]
) -> ScriptJob | None:
    """Return the description of the driver's script; None if the application has no script.

    `code_roots` are the copies of the application's code folders. Raises `LaunchRefused` if one of
    the script's files is not in any of them.
    """
    script = spec.script
    if spec.kind != "script" or script is None:
        return None

    def copy_of(file: str) -> str:
        return _copy_of(file, spec.python_path, code_roots)

    home = checkpoints_of(application.name)
    return ScriptJob(
        file=copy_of(script.file) if script.file else "",
        module=script.module,
        arguments=script.arguments,
        folder=str(home / _WORK),
        checkpoints=resolved(canonical(str(home)), follow),
        py_files=tuple(copy_of(file) for file in script.submit.py_files),
        files=tuple(copy_of(file) for file in script.submit.files),
        known=earlier_queries(application),
        accepted=tuple(Script.objects.get(application=application).accepted),
    )


def folders(application: Application) -> tuple[str, ...]:
    """Return the local folders that may contain a script's checkpoints, known or not.

    These are the folders created for the script, and its data roots. All are needed, because a
    script specifies a checkpoint only when it starts a query.
    """
    roots = (local_path(root) for root in data_roots(application.name).roots)
    return (
        str(checkpoints_of(application.name)),
        *(root for root in roots if root and os.path.isdir(root)),
    )


def earlier_queries(application: Application) -> tuple[KnownQuery, ...]:
    """Return the queries found by earlier drivers, each with the checkpoint where it continues."""
    rows = Checkpoint.objects.filter(
        query__application=application, query__archived_at=None, retired_at=None
    ).exclude(query__identity="")
    orderly = Driver.objects.filter(
        application=application, kind=DriverKind.SERVICE, exit_python="0"
    ).aggregate(Max("created_at"))["created_at__max"]

    def is_missing(query: Query) -> bool:
        # That the query was missing when the question was asked proves nothing, because the script
        # could have started it later. A complete driver run after the answer without a start of the
        # query does.
        return query.gone_at is not None and orderly is not None and orderly >= query.gone_at

    return tuple(
        KnownQuery(
            row.query_id, row.query.identity, row.query.asked, row.location, is_missing(row.query)
        )
        for row in rows.select_related("query").order_by("query_id")
    )


def submitted(submit: Submit) -> dict[str, str]:
    """Return the configuration that `spark-submit` derives from its arguments."""
    conf = {
        "spark.executor.memory": submit.executor_memory,
        "spark.executor.cores": submit.executor_cores,
        "spark.executor.instances": submit.num_executors,
        "spark.cores.max": submit.total_executor_cores,
    }
    return {name: str(value) for name, value in conf.items() if value}


def _copy_of(file: str, roots: tuple[str, ...], copies: tuple[str, ...]) -> str:
    path = Path(os.path.normpath(file))
    if not path.is_absolute() and len(copies) > len(roots):  # of the code that Headgate stores
        return str(Path(copies[-1]) / path)
    for root, copy in zip(roots, copies, strict=False):
        if path.is_relative_to(root):
            return str(Path(copy) / path.relative_to(root))
    raise LaunchRefused(
        f"{file} is not in any of the application's code folders. Correct the path."
    )
