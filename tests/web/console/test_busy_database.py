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
from django.test import Client
from django.utils import timezone

from queries.models.definitions import Query
from queries.models.lock_waits import is_busy
from queries.services.console.tokens import create_token
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
