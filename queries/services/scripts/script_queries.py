"""Create rows for the queries that a script has started, from its driver's report.

The control plane trusts only the structure of the report (`domain.scripts.found`). The allowed
places of checkpoints, and the queries that use them, are looked up here, as for a submitted
definition.
"""

from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction
from django.db.models import F

from controlplane.nudge import changed
from queries.domain.definitions import parsing
from queries.domain.definitions.locations import checkpoint_problem
from queries.domain.definitions.spec import PythonQuery
from queries.domain.errors import Problem
from queries.domain.protocol import FoundQuery
from queries.domain.scripts.questions import as_json, believed_question
from queries.domain.scripts.script_queries import MAX_QUERIES, believed, row_name, trigger_of
from queries.domain.states import Desired, Phase, Reason
from queries.domain.supervision.observation import Sighting
from queries.models.applications import Application, Script
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Driver, Run
from queries.models.installation import Installation
from queries.selectors.definitions.locations import held_checkpoints
from queries.selectors.scripts import moved_checkpoints
from queries.selectors.supervision.observation import Rows
from queries.services.changes import record
from queries.services.local_roots import checkpoint_problems

#: Notes shown on a script's page.
NOTES_AT_MOST = 100
_NOTE_LIMIT = 600


@dataclass(slots=True)
class _News:
    """The reported items that have no rows yet."""

    queries: list[FoundQuery] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    question: dict[str, object] = field(default_factory=dict)


def take_found(rows: Rows, sighting: Sighting | None, *, now: datetime) -> bool | None:
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
        for found in news.queries:
            problem = _problem(rows.application, found)
            if problem:
                news.notes.append(problem)
            else:
                _add(rows.application, driver, found, now)
        added = {found.identity for found in news.queries}
        Script.objects.filter(pk=script.pk).update(
            notes=news.notes[:NOTES_AT_MOST],
            question=news.question,
            accepted=[one for one in script.accepted if one not in added],
        )
        changed(f"application:{rows.application.pk}")
    return True


def _news(rows: Rows, driver: Driver, sighting: Sighting) -> _News:
    status = sighting.status
    assert status is not None
    heard = believed(status.found)
    report = status.script
    said = [str(note)[:_NOTE_LIMIT] for note in report.notes] if report else []
    known = set(
        Run.objects.filter(driver=driver, found__isnull=False).values_list("found", flat=True)
    )
    busy = {query.identity for query in rows.queries if query.pk in rows.runs}
    asked = believed_question(
        report.question if report else None,
        {query.pk for query in rows.queries if query.discovered and query.archived_at is None},
    )
    moved = moved_checkpoints(since=driver.created_at)
    own = [one.text for one in moved if one.application == rows.application.pk]
    news = _News(
        notes=[*own, *said, *heard.refused][:NOTES_AT_MOST],
        question=as_json(asked) if asked else {},
    )
    for found in sorted(heard.queries, key=lambda one: one.number):
        # Its earlier run is settled first; then this one is examined again.
        if not found.started or found.number in known or found.identity in busy:
            continue
        busy.add(found.identity)
        problem = _problem(rows.application, found)
        if problem:
            news.notes.append(problem)
        else:
            news.queries.append(found)
    return news


def _problem(application: Application, found: FoundQuery) -> str:
    """Return, as a sentence, why a reported query does not get a row; "" if it gets one."""
    living = Query.objects.filter(application=application, archived_at=None).exclude(identity="")
    own = living.filter(identity=found.identity).first()
    if own is None and living.count() >= MAX_QUERIES:
        return (
            f"The query {found.name or found.identity} is not shown because the application "
            f"already has {MAX_QUERIES}. Delete queries that the script no longer starts."
        )
    nested = checkpoint_problem(found.location, held_checkpoints(but=own))
    outside: list[Problem] = checkpoint_problems(found.location, application.name)
    for problem in ([nested] if nested else []) + outside:
        said = f"{problem.value[:200]} {problem.message} {problem.way_out}".strip()
        return f"The query {found.name or found.identity} is not shown: its checkpoint {said}"
    return ""


def _add(application: Application, driver: Driver, found: FoundQuery, now: datetime) -> None:
    """Insert a found query's run, and its query, revision and checkpoint if they are new."""
    query = Query.objects.filter(
        application=application, identity=found.identity, archived_at=None
    ).first()
    if query is None:
        taken = Query.objects.filter(archived_at=None, name__startswith=f"{application.name}/")
        query = Query.objects.create(
            name=row_name(application.name, found, taken.values_list("name", flat=True)),
            application=application,
            identity=found.identity,
            created_at=now,
            phase_since=now,
        )
    revision = _revision(query, found, now)
    before = query.phase
    Query.objects.filter(pk=query.pk).update(
        asked=found.asked,
        temporary=found.temporary[:200],
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
        checkpoint=_checkpoint(query, found, now),
        revision=revision,
        code_sha256=driver.code_sha256,
        generation=query.generation,
        cause=Reason.SCRIPT_STARTED,
        created_at=now,
        found=found.number,
    )
    about = {"application": application, "query": query, "run": run, "driver": driver}
    record("phase", before, Phase.STARTING, Reason.SCRIPT_STARTED, now=now, **about)
    changed(f"query:{query.pk}")


def _revision(query: Query, found: FoundQuery, now: datetime) -> QueryRevision:
    """Return the newest revision, or a new one if the script has changed the definition."""
    function = f"__main__:{query.name.partition('/')[2]}"
    spec = parsing.as_json(PythonQuery(function=function, trigger=trigger_of(found)))
    newest: QueryRevision | None = query.revisions.order_by("-number").first()
    if newest is not None and newest.spec == spec:
        return newest
    number = newest.number + 1 if newest else 1
    return QueryRevision.objects.create(
        query=query, number=number, kind="script", spec=spec, author="", created_at=now
    )


def _checkpoint(query: Query, found: FoundQuery, now: datetime) -> Checkpoint:
    """Return the query's checkpoint; one at a new location retires the previous one."""
    current = Checkpoint.objects.filter(query=query, retired_at=None).first()
    if current is not None and current.location == found.location:
        return current
    if current is not None:
        Checkpoint.objects.filter(pk=current.pk).update(retired_at=now)
    return Checkpoint.objects.create(query=query, location=found.location, created_at=now)
