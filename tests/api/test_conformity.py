"""Thousands of odd requests: the API never breaks, answers as its document says, and lets nobody
further than the role allows."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, connection
from django.db.models import Q
from django.urls import get_resolver
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, settings

from queries.models.access.accounts import AccessToken, Team
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import Failure, FailureGroup, Operation
from queries.services.access.tokens import create_token
from tests.api.document import document
from tests.examples import SHARE, examples
from tests.scenarios.stage import DIVIDE, Stage

METHODS = ("get", "post", "put", "patch", "delete")
#: What describes the rest, and answers what is not named.
UNDESCRIBED = {"docs", "schema", "nothing"}


@pytest.fixture
def _one_connection() -> Iterator[None]:
    """Keep requests from closing the connection that holds the test's transaction."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


def _headers(user: User) -> dict[str, str]:
    """Return what a user's program sends with each request."""
    row, text = create_token(
        user=user, name="tests", actor="tests", now=timezone.now(), scope="admin"
    )
    # Used later than any request here, so that none writes when it was.
    AccessToken.objects.filter(pk=row.pk).update(last_used_at=row.expiry)
    return {"Authorization": f"Token {text}"}


def _operations() -> Iterator[tuple[str, str]]:
    """Yield what the addresses take; the document, which takes a second, is made by one process."""
    api: Any = next(
        entry for entry in get_resolver().url_patterns if getattr(entry, "app_name", "") == "api"
    )
    for entry in api.url_patterns:
        path = "/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", str(entry.pattern))
        for method in METHODS if entry.name not in UNDESCRIBED else ():
            if hasattr(entry.callback.view_class, method):
                yield path, method


OPERATIONS = list(_operations())


def test_each_operation_of_the_document_is_tried() -> None:
    described = [
        (path, method)
        for path, methods in document()["paths"].items()
        for method in methods
        if method != "parameters"
    ]
    assert sorted(OPERATIONS) == sorted(described)


@pytest.fixture(scope="module")
def api() -> Any:
    """Return the API as its document describes it."""
    import schemathesis  # a second that only one process has to take

    schemathesis.serializer("application/x-tar", "application/gzip")(lambda _, value: value)
    schema = schemathesis.openapi.from_dict(document())
    schema.app = get_wsgi_application()
    return schema


@pytest.fixture(scope="module")
def checks() -> list[Any]:
    """Return the checks of the answers' form and media types, and that there is no 5xx.

    Status codes need no check of their own: every address answers what is not named with a
    problem.
    """
    from schemathesis import checks
    from schemathesis.specs.openapi import checks as openapi_checks

    return [
        checks.not_a_server_error,
        openapi_checks.status_code_conformance,
        openapi_checks.content_type_conformance,
        openapi_checks.response_schema_conformance,
        openapi_checks.response_headers_conformance,
    ]


@pytest.fixture(scope="module")
def stage(story: None) -> Stage:
    """Return an installation in which one query runs and one has failed."""
    stage = Stage()
    stage.application("flights")
    stage.query("delays", "flights")
    stage.query("alarms")
    stage.up("delays", "flights")
    stage.up("alarms")
    stage.fail("alarms", DIVIDE, batch=3)
    _of_a_team(stage)
    return stage


def _of_a_team(stage: Stage) -> None:
    """Make an application of team data, whose query has failed, and an author of another team."""
    data, web = (Team.objects.create(name=name, created_at=stage.now) for name in ("data", "web"))
    stage.query("sales")
    Application.objects.filter(name="sales").update(team=data)
    stage.up("sales")
    stage.fail("sales", DIVIDE, batch=3)
    wilma = User.objects.create_user("wilma")
    wilma.groups.add(Group.objects.get(name="author"))
    web.members.add(wilma)


@pytest.fixture
def known(stage: Stage) -> dict[str, Any]:
    """Return what is there, by the names that addresses give it."""
    return _known(stage.run("delays"), "delays", failed="alarms")


def _known(run: Run, name: str, *, failed: str) -> dict[str, Any]:
    return {
        "name": name,
        "run_id": run.pk,
        "epoch": run.driver.epoch,
        "group_id": FailureGroup.objects.get(application__name=failed).pk,
        "failure_id": Failure.objects.get(group__application__name=failed).pk,
        "uuid": str(Operation.objects.filter(query__name=name)[0].uuid),
    }


@pytest.fixture
def known_of_the_team(stage: Stage) -> dict[str, Any]:
    """Return what is there of the team's application, by the names that addresses give it."""
    return _known(stage.last_run("sales"), "sales", failed="sales")


def _rows_of(name: str) -> dict[str, list[Any]]:
    """Return every row of an application and its queries, by table."""
    application = Application.objects.get(name=name)
    found: dict[str, list[Any]] = {}
    for model in apps.get_app_config("queries").get_models():
        mine = Q(pk=application.pk) if model is Application else Q()
        for field in model._meta.concrete_fields:
            if field.related_model is Application:
                mine |= Q(**{field.name: application.pk})
            elif field.related_model is Query:
                mine |= Q(**{f"{field.name}__application": application.pk})
        if mine:
            rows = model._default_manager.filter(mine).order_by("pk")
            found[model.__name__] = list(rows.values())
    return found


def _odd(case: Any, known: dict[str, Any], *, there: bool) -> Any:
    """Return a case that waits for nothing and, where wanted, names what is there."""
    if "wait" in (case.query or {}):
        case.query["wait"] = 0  # nothing moves here: a wait would only wait
    for name, held in known.items() if there else ():
        if name in (case.path_parameters or {}):
            case.path_parameters[name] = held
    return case


def _as_many(number: int) -> settings:
    return settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.usefixtures("_one_connection")
@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda part: str(part))
def test_an_address_keeps_its_word(
    api: Any, checks: list[Any], admin: User, known: dict[str, Any], path: str, method: str
) -> None:
    turn, headers = cycle((True, False)), _headers(admin)

    @given(case=api[path][method].as_strategy())
    @_as_many(examples(10))
    def story(case: Any) -> None:
        _odd(case, known, there=next(turn)).call_and_validate(headers=headers, checks=checks)

    story()


#: What the requests of each role may change, by the tables' names: a viewer nothing, an operator
#: what runs, an author what is defined. Accounts, tokens and channels are admins' alone.
RUNS = {
    *("application", "query", "driver", "run", "operation", "transition", "incident"),
    *("incidententry", "failuregroup", "snapshot", "loss", "maintenance", "checkpoint"),
    *("installation", "auditentry", "audithead"),
}
DEFINITIONS = {"applicationrevision", "queryrevision", "schedulerpool"}
#: What a POST with an Idempotency-Key leaves, of whoever may send it.
KEYS = {"keptanswer"}
CHANGES: dict[str, set[str]] = {
    "viewer": set(),
    "operator": RUNS | KEYS,
    "author": RUNS | KEYS | DEFINITIONS | {"managed", "deploy", "deploychange"},
}
#: Reading these is itself recorded in the audit log.
RECORDED = {
    "/api/v1/export/",
    "/api/v1/runs/{run_id}/log/",
    "/api/v1/applications/{name}/drivers/{epoch}/log/",
}

_WRITES = re.compile(r'(?:INSERT (?:OR IGNORE )?INTO|UPDATE|DELETE FROM) "[a-z]+_(\w+)"')


@contextmanager
def _written() -> Iterator[set[str]]:
    """Yield the names of the tables that are written to within the block."""
    tables: set[str] = set()

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        if found := _WRITES.match(sql):
            tables.add(found[1])
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        yield tables


@pytest.mark.usefixtures("_one_connection")
@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda part: str(part))
def test_odd_requests_take_no_role_further(
    api: Any,
    checks: list[Any],
    viewer: User,
    operator: User,
    author: User,
    known: dict[str, Any],
    known_of_the_team: dict[str, Any],
    path: str,
    method: str,
) -> None:
    outside = _headers(User.objects.get(username="wilma"))
    theirs = _rows_of("sales")
    assert {"Application", "Query", "Run", "Operation"} <= {one for one in theirs if theirs[one]}
    people = {"viewer": viewer, "operator": operator, "author": author}
    callers = {name: _headers(user) for name, user in people.items()}
    turn = cycle((True, False))

    @given(case=api[path][method].as_strategy())
    @_as_many(max(1, round(8 * SHARE)))
    def story(case: Any) -> None:
        odd = _odd(case, known, there=next(turn))
        for name, headers in callers.items():
            with _written() as tables:
                odd.call_and_validate(headers=headers, checks=checks)
            recorded = {"auditentry", "audithead"} if path in RECORDED else set()
            assert tables <= CHANGES[name] | recorded, f"{name}: {method} {path}"
        _odd(odd, known_of_the_team, there=True).call_and_validate(headers=outside, checks=checks)

    story()
    assert _rows_of("sales") == theirs
