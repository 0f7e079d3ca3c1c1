"""Record an author's answer to whether a script's new query is one of its missing queries."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F

from controlplane.nudge import changed
from queries.domain.access.acts import Act
from queries.domain.errors import Conflict, Invalid, NotAllowed, Problem
from queries.domain.protocol import FoundQuery
from queries.domain.scripts.questions import called
from queries.domain.scripts.script_queries import row_name
from queries.domain.states import OPEN_DRIVER_STATES, DriverKind, Reason
from queries.models.applications import Application, Script
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver
from queries.selectors.scripts import candidate_queries
from queries.services.access.audit_trail import record_act
from queries.services.changes import record


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
            way_out="Answer when it has ended; this takes seconds.",
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
    reported = FoundQuery(1, question.identity, question.name, question.asked, "")
    before, name = query.name, row_name(row.name, reported, used_names)
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
