"""Run operations on many queries: each is requested separately, a few at a time, only once.

A request and its record are written in one transaction, so that if a worker dies, another one
continues with the next query. The operation stays open until each of its requests has ended. Its
result has a line for each query: the outcome, the reason, a remedy, and the operation that acted on
the query.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from controlplane import fail_points
from controlplane.nudge import advance_soon, changed
from queries.domain.errors import Conflict, HeadgateError
from queries.domain.reasons import noted
from queries.domain.states import (
    MANY_VERBS,
    OPEN_DRIVER_STATES,
    STOPPED_PHASES,
    Desired,
    OperationOutcome,
    RunOutcome,
    StopMode,
    Verb,
)
from queries.launchers.base import Launcher
from queries.models.applications import Application, Script
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import Operation
from queries.services.access.audit import in_bulk
from queries.services.access.tokens import begin_bulk
from queries.services.idempotency_keys import digest_of
from queries.services.supervision import operations
from queries.services.supervision.application_operations import (
    archive_application,
    request_script_start,
    request_script_stop,
)

logger = logging.getLogger(__name__)

#: Queries requested before the lease and cancellation are checked again.
SLICE = 20
#: Most queries per operation: its result is one row.
MOST_QUERIES = 2000
#: Added to the deadline of each request, for the queue in front of it.
_SLACK = timedelta(minutes=10)
REFUSED = "REFUSED"


def begin_many(
    verb: Verb,
    queries: Sequence[Query],
    *,
    actor: str,
    now: datetime,
    arguments: dict[str, Any] | None = None,
    applications: Iterable[Application] = (),
    refusals: Mapping[int, HeadgateError] | None = None,
    key: str = "",
) -> Operation:
    """Insert the operation that applies a verb to each of these queries, then to the applications.

    For an application, the verb applies to its script; with `PRUNE`, the application is deleted
    once everything in it has ended. `refusals` maps the IDs of queries that the user may not act on
    to the reasons, which are their outcomes. The same request with the same `key` returns the
    first one's operation. Raises `TooMany` if the user makes requests too often.
    """
    places = list(applications)
    scripts = Script.objects.filter(application__in=places)
    with_script = set(scripts.values_list("application", flat=True))
    refused = refusals or {}
    lines = [_line("query", row, refused.get(row.pk)) for row in queries]
    lines += [_line("application", row) | {"asks": row.pk in with_script} for row in places]
    longest = settings.OPERATION_DEADLINE_S + settings.START_MAX_S  # each ends by itself
    digest = digest_of(verb, key, [actor, arguments, [line["id"] for line in lines]])
    with transaction.atomic():
        operation, is_new = Operation.objects.get_or_create(
            uuid=UUID(digest[:32]) if key else uuid4(),
            defaults={
                "verb": verb,
                "generation": 0,
                "actor": actor,
                "created_at": now,
                "deadline": now + timedelta(seconds=longest) + _SLACK,
                "arguments": arguments or {},
                "result": {"queries": lines},
            },
        )
        if is_new:
            begin_bulk(verb=MANY_VERBS[verb], count=len(lines), actor=actor, now=now)
            advance_soon(operation.pk)
    return operation


def _line(
    of: str, row: Query | Application, refusal: HeadgateError | None = None
) -> dict[str, Any]:
    line = {"id": row.pk, "name": row.name, "outcome": None, "detail": "", "way_out": ""}
    line |= {"operation": None, "failure": None}
    if refusal is not None:
        line |= {"outcome": REFUSED, "detail": refusal.message, "way_out": refusal.way_out}
    return line if of == "query" else {**line, "of": of}


class BulkOperation:
    """The work of a verb on many queries: make the requests, a few at a time, and follow them."""

    def take(self, operation: Operation, launcher: Launcher) -> bool:
        """Make the next few requests or, after the last one, check which have ended."""
        if _take_slice(operation):
            return True
        _look_at_the_end(operation)
        return False


def _take_slice(operation: Operation) -> bool:
    """Make the next few requests; return whether there were any."""
    if operation.outcome or operation.deadline <= timezone.now():
        return False
    lines = operation.result["queries"]
    waiting = [one for one in lines if not _is_asked(operation, one)][:SLICE]
    for line in waiting:
        _ask_one(operation, line)
    return bool(waiting)


def _is_asked(operation: Operation, line: dict[str, Any]) -> bool:
    deleted = operation.verb == Verb.PRUNE and line.get("of") and not line.get("asks")
    return bool(line["outcome"] or line["operation"] or deleted)


def _ask_one(operation: Operation, line: dict[str, Any]) -> None:
    """Make one request and record it in the same transaction; a rejection is its outcome."""
    with _by_itself(operation, line), transaction.atomic():
        fail_points.reach("many.ask")
        child = (_request_script if line.get("of") else _request)(operation, line["id"])
        line["operation"] = str(child.uuid)
        _save(operation)
    if line["outcome"]:
        _save(operation)


@contextmanager
def _by_itself(operation: Operation, line: dict[str, Any]) -> Iterator[None]:
    """Convert an error of one query to its outcome, so that the others continue."""
    held = line["operation"]
    try:
        yield
    except HeadgateError as error:
        line.update(outcome=REFUSED, detail=error.message, way_out=error.way_out, operation=held)
    except (Query.DoesNotExist, Application.DoesNotExist):
        way_out = "Remove it from the selection, or create it again."
        line.update(outcome=REFUSED, detail="It has been deleted.", way_out=way_out, operation=held)
    except Exception as error:  # loop boundary: one query must not affect the others
        logger.exception("%s of operation %s", line["name"], operation.pk)
        way_out = "See the worker's log."
        told = f"{type(error).__name__}: {error}"
        line.update(outcome=REFUSED, detail=told, way_out=way_out, operation=held)


def _request(operation: Operation, query_id: int) -> Operation:
    query = Query.objects.get(pk=query_id, archived_at=None)
    by: dict[str, Any] = {"query": query, "actor": operation.actor, "now": timezone.now()}
    accepts = bool(operation.arguments.get("accept_state_change"))
    with in_bulk():
        match MANY_VERBS[Verb(operation.verb)]:
            case Verb.START:
                return operations.request_start(**by, accept_state_change=accepts)
            case Verb.RESTART:
                return operations.request_restart(**by, accept_state_change=accepts)
            case Verb.STOP:
                mode = StopMode(operation.arguments.get("mode", StopMode.GRACEFUL))
                return operations.request_stop(mode=mode, **by)
            case other:
                raise ValueError(f"{other} is not requested of many queries")


def _request_script(operation: Operation, application_id: int) -> Operation:
    row = Application.objects.get(pk=application_id, archived_at=None)
    by: dict[str, Any] = {"application": row, "actor": operation.actor, "now": timezone.now()}
    with in_bulk():
        if MANY_VERBS[Verb(operation.verb)] is Verb.START:
            return request_script_start(**by)
        return request_script_stop(mode=StopMode.GRACEFUL, **by)


def _save(operation: Operation, **fields: Any) -> None:
    rows = Operation.objects.filter(pk=operation.pk, outcome=OperationOutcome.OPEN)
    rows.update(result=operation.result, **fields)


def _look_at_the_end(operation: Operation) -> None:
    """Record which requests have ended; end the operation when the last one has."""
    if operation.outcome:
        return
    now, lines = timezone.now(), operation.result["queries"]
    asked = [line["operation"] for line in lines if line["operation"] and not line["outcome"]]
    ended = {
        str(row.uuid): row for row in Operation.objects.filter(uuid__in=asked).exclude(outcome="")
    }
    for line in lines:
        row = ended.get(line["operation"] or "")
        if row is not None and not line["outcome"]:
            done = operation.verb != Verb.PRUNE or row.outcome != OperationOutcome.DONE
            line.update(outcome=str(row.outcome) if done else None, detail=str(row.detail))
            line["failure"] = row.failure_id
    if operation.verb == Verb.PRUNE:
        for line in lines:
            if not line["outcome"]:
                _delete(operation, line, now)
    left = [line for line in lines if not line["outcome"]]
    if left and operation.deadline > now:
        _save(operation, detail=noted(f"{len(left)} of {len(lines)} are in progress"))
    else:
        bad = [one for one in lines if one["outcome"] != OperationOutcome.DONE]
        outcome = OperationOutcome.DONE
        if bad:
            outcome = OperationOutcome.TIMED_OUT if left else OperationOutcome.FAILED
        first = f": {bad[0]['name']}…" if bad else ""
        said = f"{len(bad)} of {len(lines)} did not succeed{first}" if bad else ""
        _save(operation, outcome=outcome, ended_at=now, detail=noted(said))
    changed(f"operation:{operation.uuid}")


def _delete(operation: Operation, line: dict[str, Any], now: datetime) -> None:
    """Delete a query or application if it has stopped; otherwise, leave it for a later check."""
    by: dict[str, Any] = {"actor": operation.actor, "now": now}
    with _by_itself(operation, line):
        delete = _delete_application if line.get("of") == "application" else _delete_query
        if delete(line["id"], **by):
            line.update(outcome=str(OperationOutcome.DONE), detail="deleted")


def _delete_application(pk: int, **by: Any) -> bool:
    """Delete an application without queries and drivers; return whether it is gone.

    Queries started by its script are deleted with it.
    """
    place = Application.objects.get(pk=pk)
    if place.archived_at is not None:
        return True
    script = Script.objects.filter(application=place).first()
    if script is not None and script.desired != Desired.STOPPED:
        raise Conflict("Its script has been started again.")
    drivers = place.drivers.filter(state__in=sorted(OPEN_DRIVER_STATES))
    defined = place.queries.filter(archived_at=None, identity="")
    ended = script is None or script.phase in STOPPED_PHASES
    if not ended or defined.exists() or drivers.exists():
        return False
    archive_application(application=place, **by)
    return True


def _delete_query(pk: int, **by: Any) -> bool:
    """Delete a stopped query; return whether it is gone."""
    query = Query.objects.get(pk=pk)
    if query.archived_at is not None:
        return True
    if query.desired != Desired.STOPPED:
        raise Conflict("It has been started again.")
    has_run = Run.objects.filter(query=query, outcome=RunOutcome.OPEN).exists()
    if query.phase not in STOPPED_PHASES or has_run:
        return False
    operations.archive_query(query=query, **by)
    return True
