"""An author says whether a query that came in a script is one of those that went."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import F

from controlplane.nudge import changed
from queries.domain.access.acts import Act
from queries.domain.errors import Conflict, Invalid, NotAllowed, Problem
from queries.domain.protocol import FoundQuery
from queries.domain.scripts.found import row_name
from queries.domain.scripts.questions import called
from queries.domain.states import OPEN_DRIVER_STATES, DriverKind, Reason
from queries.models.applications import Application, Script
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver
from queries.selectors.scripts import asked_about
from queries.services.access.audit_trail import record_act
from queries.services.changes import record


@dataclass(frozen=True, slots=True)
class _Asked:
    """The question that a script's driver has left."""

    identity: str
    name: str
    asked: str
    missing: list[Query]


def take_answer(
    row: Application, script: Script, *, identity: str, same_as: str, actor: str, now: datetime
) -> None:
    """Write what an author says of a new query: the same as the missing one of a name; "": another.

    The same takes over the row, the history and the checkpoint. Another begins with its own; the
    missing ones stay as they are, and are shown as gone until the script starts them again. To be
    called in a transaction that has locked both rows.
    """
    asked = _question(row, script, identity)
    if same_as:
        _take_over(row, asked, same_as, actor, now)
    else:
        _accept(row, script, asked, actor, now)
    Script.objects.filter(pk=script.pk).update(question={})
    # A look that is under way has read what is not so any more.
    Application.objects.filter(pk=row.pk).update(version=F("version") + 1)
    record_act(
        Act.QUERY_IDENTITY,
        actor=actor,
        now=now,
        subject=row.name,
        query=called(asked.name, asked.asked),
        same_as=same_as,
        missing=[query.name for query in asked.missing],
    )
    changed(f"application:{row.pk}")


def _question(row: Application, script: Script, identity: str) -> _Asked:
    """Return the question that is answered; raise where it is another, or none, by now."""
    if not script.question:
        raise NotAllowed(
            f"The script of {row.name} has no question.",
            way_out="Look at the application; it may have been answered, or started again.",
        )
    held = script.question
    if held["identity"] != identity:
        raise Conflict(
            f"The script of {row.name} asks about another query by now: {held['identity']}.",
            way_out="Look at the application again.",
        )
    open_ones = Driver.objects.filter(
        application=row, kind=DriverKind.SERVICE, state__in=OPEN_DRIVER_STATES
    )
    if open_ones.exists():
        raise Conflict(
            f"The driver of {row.name} is still ending.",
            way_out="Answer once it has ended; it takes seconds.",
        )
    return _Asked(held["identity"], held["name"], held["asked"], list(asked_about(script)))


def _take_over(row: Application, asked: _Asked, same_as: str, actor: str, now: datetime) -> None:
    """Give the missing query of a name the identity of the new one."""
    query = next((one for one in asked.missing if one.name == same_as), None)
    if query is None:
        names = ", ".join(one.name for one in asked.missing)
        message = "is not one of the queries that are missing."
        raise Invalid([Problem("same_as", same_as[:200], message, f"Choose one of {names}.")])
    others = Query.objects.filter(archived_at=None, name__startswith=f"{row.name}/")
    taken = others.exclude(pk=query.pk).values_list("name", flat=True)
    found = FoundQuery(1, asked.identity, asked.name, asked.asked, "")
    before, name = query.name, row_name(row.name, found, taken)
    Query.objects.filter(pk=query.pk).update(
        identity=asked.identity, asked=asked.asked, name=name, gone_at=None
    )
    about = {"application": row, "query": query, "actor": actor}
    record("identity", before[-40:], name[-40:], Reason.SAME_QUERY, now=now, **about)
    changed(f"query:{query.pk}")


def _accept(row: Application, script: Script, asked: _Asked, actor: str, now: datetime) -> None:
    """Note that the new query is one of its own, and that the missing ones are gone."""
    held = Checkpoint.objects.filter(query__in=asked.missing, retired_at=None)
    if owner := held.filter(location=asked.asked).select_related("query").first():
        message = f"cannot be: the script names the checkpoint of {owner.query.name} for it."
        way_out = f"Say that it is the same as {owner.query.name}, or change the checkpoint."
        raise Invalid([Problem("same_as", "", message, way_out)])
    accepted = [*(one for one in script.accepted if one != asked.identity), asked.identity]
    Script.objects.filter(pk=script.pk).update(accepted=accepted)
    Query.objects.filter(pk__in=[one.pk for one in asked.missing]).update(gone_at=now)
    after = called(asked.name, asked.asked)[:40]
    for query in asked.missing:
        about = {"application": row, "query": query, "actor": actor}
        record("identity", query.name[-40:], after, Reason.OTHER_QUERY, now=now, **about)
        changed(f"query:{query.pk}")
