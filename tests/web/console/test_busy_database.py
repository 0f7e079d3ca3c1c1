"""A write that waits for the database in vain answers 503, with the time to try it again."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, OperationalError, connection, transaction
from django.db.models import QuerySet
from django.test import Client, RequestFactory
from django.utils import timezone
from django.utils.module_loading import import_string

from queries.models.access.accounts import Team
from queries.models.definitions import Query
from queries.models.drivers import Host
from queries.models.lock_waits import again_if_busy, is_busy
from queries.selectors.supervision.observation import read_rows
from queries.services.access.tokens import create_token
from queries.services.supervision import hosts, reconcile
from queries.views.console.errors import server_error
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.sql

LIMIT_S = 60  # generous: the machine may be busy


@contextmanager
def held_by_another() -> Iterator[None]:
    """Let another connection hold what a write needs, and this one wait for it but briefly."""
    holds, over = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                Query.objects.update(failures=0)
                holds.set()
                over.wait(LIMIT_S)
        finally:
            connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert holds.wait(LIMIT_S)
        with connection.cursor() as cursor:
            cursor.execute(
                "PRAGMA busy_timeout=50"
                if connection.vendor == "sqlite"
                else "SET lock_timeout = 50"
            )
        yield
    finally:
        over.set()
        thread.join(LIMIT_S)
        connection.close()  # the next one waits as usual


@pytest.mark.django_db(transaction=True)
def test_the_api_answers_503_and_when_to_try_again(client: Client, operator: User) -> None:
    Stage().query("delays")
    _, text = create_token(user=operator, name="tests", actor="tests", now=timezone.now())
    headers = {"Authorization": f"Token {text}"}
    with held_by_another():
        answer = client.post(
            "/api/v1/queries/delays/start/", content_type="application/json", headers=headers
        )
    assert answer.status_code == 503, answer.content
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["Retry-After"] == "5"
    body = answer.json()
    assert body["type"] == "urn:headgate:problem:busy"
    assert body["detail"] == "The database is busy with other writes; nothing was changed."
    assert body["way_out"] == "Try again in a few seconds."
    again = client.post(
        "/api/v1/queries/delays/start/", content_type="application/json", headers=headers
    )
    assert again.status_code == 202


def _busy_once(monkeypatch: pytest.MonkeyPatch, where: str, *, times: int = 1) -> list[int]:
    """Make the first calls of a service wait for the database in vain; return all its calls."""
    act, called = import_string(where), list[int]()

    def acts(*given: Any, **named: Any) -> Any:
        called.append(1)
        if len(called) <= times:
            raise _of(_sqlite(5))
        return act(*given, **named)

    monkeypatch.setattr(where, acts)
    return called


@pytest.fixture
def by_token(transactional_db: None) -> dict[str, Any]:
    """Return how an admin's program sends JSON."""
    root = User.objects.create_superuser("root")
    _, text = create_token(
        user=root, name="tests", actor="tests", now=timezone.now(), scope="admin"
    )
    return {
        "content_type": "application/json",
        "headers": {"Authorization": f"Token {text}"},
    }


TEAMS = "/api/v1/teams/"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("method", "data", "status"), [("put", {"members": ["root"]}, 200), ("delete", None, 204)]
)
def test_the_api_tries_a_change_that_is_safe_to_repeat_again(
    client: Client,
    by_token: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    data: Any,
    status: int,
) -> None:
    Team.objects.create(name="data", created_at=timezone.now())
    called = _busy_once(monkeypatch, "queries.services.access.teams.record_act")
    answer = getattr(client, method)(f"{TEAMS}data/", data, **by_token)
    assert answer.status_code == status, answer.content
    assert len(called) == 2


@pytest.mark.django_db(transaction=True)
def test_the_api_leaves_it_to_the_sender_to_repeat_a_post(
    client: Client, by_token: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = _busy_once(monkeypatch, "queries.services.access.teams.record_act")
    by_token["headers"]["Idempotency-Key"] = "once"
    busy = client.post(TEAMS, {"name": "data"}, **by_token)
    assert (busy.status_code, busy["Retry-After"], len(called)) == (503, "5", 1)
    assert client.post(TEAMS, {"name": "data"}, **by_token).status_code == 201


@pytest.mark.django_db(transaction=True)
def test_a_change_is_answered_even_where_the_answer_cannot_be_kept(
    client: Client, by_token: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = _busy_once(monkeypatch, "queries.api.base.keep_answer", times=2)
    by_token["headers"]["Idempotency-Key"] = "once"
    assert client.post(TEAMS, {"name": "data"}, **by_token).status_code == 201
    assert len(called) == 2
    assert Team.objects.get().name == "data"


@pytest.mark.parametrize("accept", ["text/html", "application/json"])
def test_outside_of_a_view_a_busy_database_is_no_error_of_the_server(
    accept: str, rf: RequestFactory
) -> None:
    request = rf.post("/queries/new/", {"sql": "SELECT 1"}, headers={"accept": accept})
    try:
        raise _of(_sqlite(5))
    except OperationalError:
        answer = server_error(request)
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    page = answer.content.decode()
    assert "The database is busy with other writes; nothing was changed." in page
    assert ("SELECT 1" in page) is (accept == "text/html")


@pytest.mark.django_db(transaction=True)
def test_a_page_says_so_in_a_sentence(client: Client, operator: User) -> None:
    query = Stage().query("delays")
    client.force_login(operator)
    with held_by_another():
        answer = client.post(f"/queries/{query.name}/start/")
    assert answer.status_code == 503
    assert answer["Retry-After"] == "5"
    page = answer.content.decode()
    assert "The database is busy with other writes; nothing was changed." in page
    assert "Try again in a few seconds." in page


@pytest.mark.django_db(transaction=True)
def test_a_script_of_ours_is_told_what_to_show(client: Client, operator: User) -> None:
    query = Stage().query("delays")
    client.force_login(operator)
    with held_by_another():
        answer = client.post(
            f"/queries/{query.name}/start/", headers={"accept": "application/json"}
        )
    assert answer.status_code == 503
    assert answer.json()["text"].startswith("The database is busy")


def _of(cause: Any, kind: type[DatabaseError] = OperationalError) -> DatabaseError:
    error = kind("as Django wraps it")
    error.__cause__ = cause
    return error


def _sqlite(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "busy"),
    [
        (_of(_sqlite(5)), True),
        (_of(_sqlite(517)), True),  # SQLITE_BUSY_SNAPSHOT
        (_of(_sqlite(10)), False),  # SQLITE_IOERR: no repetition mends that
        (_of(psycopg.errors.LockNotAvailable()), True),
        (_of(psycopg.errors.DeadlockDetected()), True),
        (_of(psycopg.errors.AdminShutdown()), False),
        (_of(None), False),
        (_of(_sqlite(5), DatabaseError), False),
        (ValueError("no database at all"), False),
    ],
)
def test_a_busy_database_is_told_from_a_broken_one(error: Exception, busy: bool) -> None:
    assert is_busy(error) is busy


@pytest.mark.django_db(transaction=True)
def test_a_write_that_waited_in_vain_is_repeated_once_and_no_other() -> None:
    tried: list[int] = []

    def act(*errors: Exception) -> int:
        tried.append(1)
        if len(tried) <= len(errors):
            raise errors[len(tried) - 1]
        return len(tried)

    busy = _of(_sqlite(5))
    assert again_if_busy(lambda: act(busy)) == 2
    for errors, times in (((busy, busy), 2), ((_of(_sqlite(10)),), 1)):
        tried.clear()
        with pytest.raises(OperationalError):
            again_if_busy(lambda errors=errors: act(*errors))  # type: ignore[misc]
        assert len(tried) == times
    tried.clear()
    with pytest.raises(OperationalError), transaction.atomic():
        again_if_busy(lambda: act(busy))
    assert len(tried) == 1


@pytest.mark.django_db(transaction=True)
def test_a_sweep_and_a_heartbeat_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    query = stage.query("delays")
    times: list[str] = []

    def busy_once(name: str, act: Any) -> Any:
        def acts(*given: Any, **named: Any) -> Any:
            times.append(name)
            if times.count(name) == 1:
                raise _of(_sqlite(5))
            return act(*given, **named)

        return acts

    monkeypatch.setattr(reconcile, "read_rows", busy_once("rows", read_rows))
    reconcile.reconcile(query.application_id, launcher=stage.launcher, now=timezone.now())
    assert times.count("rows") >= 2
    mine = hosts.this_worker()
    hosts.attempt(mine, None, take=True)
    update = busy_once("update", QuerySet.update)
    monkeypatch.setattr(QuerySet, "update", update)
    monkeypatch.setattr(hosts, "launcher", lambda: stage.launcher)
    assert hosts.renew(mine)
    assert times.count("update") == 2
    assert Host.objects.get().claim == mine.claim
