"""A worker's thread keeps its database connection from task to task."""

import time

import pytest
from celery.fixups.django import DjangoWorkerFixup  # type: ignore[attr-defined]
from celery.signals import task_postrun, task_prerun
from django.db import connection

from controlplane.celery import app
from queries import tasks


@pytest.fixture
def between_tasks() -> DjangoWorkerFixup:
    """What Celery does in a worker before and after a task; a task has just used the database."""
    fixup = DjangoWorkerFixup(app)
    connection.ensure_connection()
    return fixup


@pytest.mark.django_db(transaction=True)
def test_a_connection_stays_open_after_a_task_and_before_the_next(
    between_tasks: DjangoWorkerFixup, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = connection.connection
    monkeypatch.setattr(connection, "close_at", time.monotonic() + 60)
    between_tasks.on_task_postrun(sender=tasks.advance_deploys)
    between_tasks.on_task_prerun(sender=tasks.advance_deploys)
    task_prerun.send(sender=tasks.advance_deploys, task=tasks.advance_deploys)
    assert kept is not None
    assert connection.connection is kept


@pytest.mark.django_db(transaction=True)
def test_a_connection_that_is_too_old_is_closed_before_the_next_task(
    between_tasks: DjangoWorkerFixup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "close_at", time.monotonic() - 1)
    task_postrun.send(sender=tasks.advance_deploys, task=tasks.advance_deploys, state="FAILURE")
    assert connection.connection is not None
    task_prerun.send(sender=tasks.advance_deploys, task=tasks.advance_deploys)
    assert connection.connection is None
