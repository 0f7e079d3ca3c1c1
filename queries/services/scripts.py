"""Scripts: the job that a driver runs, the queries that it starts, authors' answers about new
ones.

The control plane trusts only the structure of the report (`domain.scripts.found`). The allowed
places of checkpoints, and the queries that use them, are looked up here, as for a submitted
definition.
"""

import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from django.db import transaction
from django.db.models import F, Max

from controlplane.nudge import changed
from queries.domain.access import Act
from queries.domain.definitions import parsing
from queries.domain.definitions.allowed_paths import resolved
from queries.domain.definitions.locations import canonical, checkpoint_problem, local_path
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, Submit
from queries.domain.errors import Conflict, Invalid, NotAllowed, Problem
from queries.domain.protocol import FoundQuery, KnownQuery, ScriptJob
from queries.domain.scripts import (
    MAX_QUERIES,
    as_json,
    believed,
    believed_question,
    called,
    row_name,
    trigger_of,
)
from queries.domain.states import OPEN_DRIVER_STATES, Desired, DriverKind, Phase, Reason
from queries.domain.supervision.observation import Sighting
from queries.launchers.base import LaunchRefused
from queries.models.applications import Application, Script
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Driver, Installation, Run
from queries.selectors.code import candidate_queries, moved_checkpoints
from queries.selectors.definitions.definitions import held_checkpoints
from queries.selectors.supervision.observation import Rows
from queries.services.access.audit import record_act
from queries.services.changes import record
from queries.services.local_roots import allowed_paths, checkpoint_problems, checkpoints_of, follow


def refuse_discovered(query: Query) -> None:
    """Raise `NotAllowed` if a script starts the query, which then has no individual actions."""
    if query.discovered:
        name = query.application.name
        raise NotAllowed(
            f"{query.name} is started by the script of application {name}.",
            way_out=f"Start, stop or restart application {name}; change the query in its script.",
        )


#: Notes shown on a script's page.
NOTES_AT_MOST = 100
_NOTE_LIMIT = 600


@dataclass(slots=True)
class _News:
    """The reported items that have no rows yet."""

    queries: list[FoundQuery] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    question: dict[str, object] = field(default_factory=dict)


def create_discovered_queries(
    rows: Rows, sighting: Sighting | None, *, now: datetime
) -> bool | None:
    """Create a row for each reported query that does not have one.

    Returns whether any row was written; None if the application has been changed in the meantime.
    """
    script, driver = rows.script, rows.driver
    if script is None or driver is None or sighting is None or sighting.status is None:
        return False
    news = _news(rows, driver, sighting)
    if not news.queries and (news.notes, news.question) == (script.notes, script.question):
        return False
    with transaction.atomic():
        won = Application.objects.filter(
            pk=rows.application.pk, version=rows.application.version
        ).update(version=F("version") + 1)
        if not won:
            return None
        for reported_query in news.queries:
            problem = _problem(rows.application, reported_query)
            if problem:
                news.notes.append(problem)
            else:
                _add(rows.application, driver, reported_query, now)
        added = {reported_query.identity for reported_query in news.queries}
        Script.objects.filter(pk=script.pk).update(
            notes=news.notes[:NOTES_AT_MOST],
            question=news.question,
            accepted=[identity for identity in script.accepted if identity not in added],
        )
        changed(f"application:{rows.application.pk}")
    return True


def _news(rows: Rows, driver: Driver, sighting: Sighting) -> _News:
    status = sighting.status
    assert status is not None
    valid = believed(status.found)
    report = status.script
    notes = [str(note)[:_NOTE_LIMIT] for note in report.notes] if report else []
    known_numbers = set(
        Run.objects.filter(driver=driver, found__isnull=False).values_list("found", flat=True)
    )
    busy = {query.identity for query in rows.queries if query.pk in rows.runs}
    question = believed_question(
        report.question if report else None,
        {query.pk for query in rows.queries if query.discovered and query.archived_at is None},
    )
    moved = moved_checkpoints(since=driver.created_at)
    own = [note.text for note in moved if note.application == rows.application.pk]
    news = _News(
        notes=[*own, *notes, *valid.refused][:NOTES_AT_MOST],
        question=as_json(question) if question else {},
    )
    for reported_query in sorted(valid.queries, key=lambda query: query.number):
        # Its earlier run is settled first; then this one is examined again.
        if (
            not reported_query.started
            or reported_query.number in known_numbers
            or reported_query.identity in busy
        ):
            continue
        busy.add(reported_query.identity)
        problem = _problem(rows.application, reported_query)
        if problem:
            news.notes.append(problem)
        else:
            news.queries.append(reported_query)
    return news


def _problem(application: Application, query: FoundQuery) -> str:
    """Return, as a sentence, why a reported query does not get a row; "" if it gets one."""
    living = Query.objects.filter(application=application, archived_at=None).exclude(identity="")
    own = living.filter(identity=query.identity).first()
    if own is None and living.count() >= MAX_QUERIES:
        return (
            f"The query {query.name or query.identity} is not shown because the application "
            f"already has {MAX_QUERIES}. Delete queries that the script no longer starts."
        )
    nested = checkpoint_problem(query.location, held_checkpoints(but=own))
    outside: list[Problem] = checkpoint_problems(query.location, application.name)
    for problem in ([nested] if nested else []) + outside:
        why = f"{problem.value[:200]} {problem.message} {problem.way_out}".strip()
        return f"The query {query.name or query.identity} is not shown: its checkpoint {why}"
    return ""


def _add(
    application: Application, driver: Driver, reported_query: FoundQuery, now: datetime
) -> None:
    """Insert a found query's run, and its query, revision and checkpoint if they are new."""
    query = Query.objects.filter(
        application=application, identity=reported_query.identity, archived_at=None
    ).first()
    if query is None:
        siblings = Query.objects.filter(archived_at=None, name__startswith=f"{application.name}/")
        query = Query.objects.create(
            name=row_name(
                application.name, reported_query, siblings.values_list("name", flat=True)
            ),
            application=application,
            identity=reported_query.identity,
            created_at=now,
            phase_since=now,
        )
    revision = _revision(query, reported_query, now)
    before = query.phase
    Query.objects.filter(pk=query.pk).update(
        asked=reported_query.asked,
        temporary=reported_query.temporary[:200],
        gone_at=None,
        target_revision=revision,
        desired=Desired.RUNNING,
        phase=Phase.STARTING,
        phase_reason=Reason.SCRIPT_STARTED,
        phase_detail={},
        phase_since=now,
    )
    run = Run.objects.create(
        query=query,
        driver=driver,
        epoch=Installation.draw_epoch(),
        checkpoint=_checkpoint(query, reported_query, now),
        revision=revision,
        code_sha256=driver.code_sha256,
        generation=query.generation,
        cause=Reason.SCRIPT_STARTED,
        created_at=now,
        found=reported_query.number,
    )
    about = {"application": application, "query": query, "run": run, "driver": driver}
    record("phase", before, Phase.STARTING, Reason.SCRIPT_STARTED, now=now, **about)
    changed(f"query:{query.pk}")


def _revision(query: Query, reported_query: FoundQuery, now: datetime) -> QueryRevision:
    """Return the newest revision, or a new one if the script has changed the definition."""
    function = f"__main__:{query.name.partition('/')[2]}"
    spec = parsing.as_json(PythonQuery(function=function, trigger=trigger_of(reported_query)))
    newest: QueryRevision | None = query.revisions.order_by("-number").first()
    if newest is not None and newest.spec == spec:
        return newest
    number = newest.number + 1 if newest else 1
    return QueryRevision.objects.create(
        query=query, number=number, kind="script", spec=spec, author="", created_at=now
    )


def _checkpoint(query: Query, reported_query: FoundQuery, now: datetime) -> Checkpoint:
    """Return the query's checkpoint; one at a new location retires the previous one."""
    current = Checkpoint.objects.filter(query=query, retired_at=None).first()
    if current is not None and current.location == reported_query.location:
        return current
    if current is not None:
        Checkpoint.objects.filter(pk=current.pk).update(retired_at=now)
    return Checkpoint.objects.create(query=query, location=reported_query.location, created_at=now)


@dataclass(frozen=True, slots=True)
class _PendingQuestion:
    """The pending question from a script's driver."""

    identity: str
    name: str
    asked: str
    missing: list[Query]


def take_answer(
    row: Application, script: Script, *, identity: str, same_as: str, actor: str, now: datetime
) -> None:
    """Store an author's answer: which missing query a new query is, or "" for a separate one.

    If the new query is a missing one, it takes over that row, its history and its checkpoint.
    Otherwise it starts with its own; the missing queries do not change, and are shown as gone until
    the script starts them again. Call this in a transaction that has locked both rows.
    """
    question = _question(row, script, identity)
    if same_as:
        _take_over(row, question, same_as, actor, now)
    else:
        _accept(row, script, question, actor, now)
    Script.objects.filter(pk=script.pk).update(question={})
    # A reconcile in progress has read rows that are now outdated.
    Application.objects.filter(pk=row.pk).update(version=F("version") + 1)
    record_act(
        Act.QUERY_IDENTITY,
        actor=actor,
        now=now,
        subject=row.name,
        query=called(question.name, question.asked),
        same_as=same_as,
        missing=[query.name for query in question.missing],
    )
    changed(f"application:{row.pk}")


def _question(row: Application, script: Script, identity: str) -> _PendingQuestion:
    """Return the pending question; raise an error if it has changed or is gone."""
    if not script.question:
        raise NotAllowed(
            f"Script {row.name} is not waiting for an answer.",
            way_out=(
                "Check the application; the question may have been answered, or the script "
                "restarted."
            ),
        )
    pending = script.question
    if pending["identity"] != identity:
        raise Conflict(
            f"Script {row.name} is now asking about another query: {pending['identity']}.",
            way_out="Check the application again.",
        )
    open_ones = Driver.objects.filter(
        application=row, kind=DriverKind.SERVICE, state__in=OPEN_DRIVER_STATES
    )
    if open_ones.exists():
        raise Conflict(
            f"The driver of {row.name} is still ending.",
            way_out="Answer once it has ended; this takes a few seconds.",
        )
    return _PendingQuestion(
        pending["identity"], pending["name"], pending["asked"], list(candidate_queries(script))
    )


def _take_over(
    row: Application, question: _PendingQuestion, same_as: str, actor: str, now: datetime
) -> None:
    """Give the named missing query the identity of the new one."""
    query = next(
        (missing_query for missing_query in question.missing if missing_query.name == same_as), None
    )
    if query is None:
        names = ", ".join(missing_query.name for missing_query in question.missing)
        message = "is not one of the missing queries."
        raise Invalid([Problem("same_as", same_as[:200], message, f"Choose one of {names}.")])
    others = Query.objects.filter(archived_at=None, name__startswith=f"{row.name}/")
    used_names = others.exclude(pk=query.pk).values_list("name", flat=True)
    new_query = FoundQuery(1, question.identity, question.name, question.asked, "")
    before, name = query.name, row_name(row.name, new_query, used_names)
    Query.objects.filter(pk=query.pk).update(
        identity=question.identity, asked=question.asked, name=name, gone_at=None
    )
    about = {"application": row, "query": query, "actor": actor}
    record("identity", before[-40:], name[-40:], Reason.SAME_QUERY, now=now, **about)
    changed(f"query:{query.pk}")


def _accept(
    row: Application, script: Script, question: _PendingQuestion, actor: str, now: datetime
) -> None:
    """Record that the new query is a separate one, and that the missing ones are gone."""
    checkpoints = Checkpoint.objects.filter(query__in=question.missing, retired_at=None)
    if owner := checkpoints.filter(location=question.asked).select_related("query").first():
        message = f"cannot be right: the script uses the checkpoint of {owner.query.name} for it."
        way_out = f"Answer that it is the same as {owner.query.name}, or change the checkpoint."
        raise Invalid([Problem("same_as", "", message, way_out)])
    accepted = [
        *(identity for identity in script.accepted if identity != question.identity),
        question.identity,
    ]
    Script.objects.filter(pk=script.pk).update(accepted=accepted)
    Query.objects.filter(pk__in=[missing_query.pk for missing_query in question.missing]).update(
        gone_at=now
    )
    after = called(question.name, question.asked)[:40]
    for query in question.missing:
        about = {"application": row, "query": query, "actor": actor}
        record("identity", query.name[-40:], after, Reason.OTHER_QUERY, now=now, **about)
        changed(f"query:{query.pk}")


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

    These are the folders created for the script, and its allowed paths. All are needed, because a
    script specifies a checkpoint only when it starts a query.
    """
    roots = (local_path(root) for root in allowed_paths(application.name).roots)
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
