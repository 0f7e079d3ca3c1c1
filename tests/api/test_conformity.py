"""Thousands of odd requests: the API never breaks, and answers as its document says."""

import re
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from django.urls import get_resolver
from hypothesis import HealthCheck, Phase, given, settings

from queries.models.failures import Failure, FailureGroup
from queries.models.history import Operation
from queries.services.console.tokens import create_token
from tests.api.document import document
from tests.examples import examples
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


@pytest.fixture
def headers(admin: User) -> dict[str, str]:
    """Return what Ada sends with each request."""
    _, text = create_token(user=admin, name="tests", actor="tests")
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
    return stage


@pytest.mark.usefixtures("_one_connection")
@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda part: str(part))
def test_an_address_keeps_its_word(
    api: Any, checks: list[Any], headers: dict[str, str], stage: Stage, path: str, method: str
) -> None:
    known = {
        "name": "delays",
        "run_id": stage.run("delays").pk,
        "group_id": FailureGroup.objects.get().pk,
        "failure_id": Failure.objects.get().pk,
        "uuid": str(Operation.objects.first().uuid),  # type: ignore[union-attr]
    }.items()
    turn = cycle((True, False))

    @given(case=api[path][method].as_strategy())
    @settings(
        max_examples=examples(15),
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def story(case: Any) -> None:
        if "wait" in (case.query or {}):
            case.query["wait"] = 0  # nothing moves here: a wait would only wait
        for name, held in known:
            if name in (case.path_parameters or {}) and next(turn):
                case.path_parameters[name] = held  # every other time, what is there
        case.call_and_validate(headers=headers, checks=checks)

    story()
