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
    recorded = set(
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
    for reported_query in sorted(valid.queries, key=lambda reported: reported.number):
        # Its earlier run is settled first; then this one is examined again.
        if (
            not reported_query.started
            or reported_query.number in recorded
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


def _problem(application: Application, reported: FoundQuery) -> str:
    """Return, as a sentence, why a reported query does not get a row; "" if it gets one."""
    living = Query.objects.filter(application=application, archived_at=None).exclude(identity="")
    own = living.filter(identity=reported.identity).first()
    if own is None and living.count() >= MAX_QUERIES:
        return (
            f"The query {reported.name or reported.identity} is not shown because the application "
            f"already has {MAX_QUERIES}. Delete queries that the script no longer starts."
        )
    nested = checkpoint_problem(reported.location, held_checkpoints(but=own))
    outside: list[Problem] = checkpoint_problems(reported.location, application.name)
    for problem in ([nested] if nested else []) + outside:
        why = f"{problem.value[:200]} {problem.message} {problem.way_out}".strip()
        return f"The query {reported.name or reported.identity} is not shown: its checkpoint {why}"
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
