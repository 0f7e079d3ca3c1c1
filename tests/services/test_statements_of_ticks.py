"""No tick asks the database more often because more queries run: it would be late one day."""

import pytest
import redis
from celery import current_app
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

import listeners.tasks  # noqa: F401 - registers its tasks
import queries.tasks  # noqa: F401 - registers its tasks
from tests.conftest_redis import redis_client, valkey
from tests.scenarios.stage import Stage

__all__ = ["redis_client", "valkey"]  # fixtures

pytestmark = pytest.mark.sql

#: Ticks that work on one row after the other, and only on those that are due.
ONE_BY_ONE = {"queries.tasks.sweep"}


@pytest.mark.redis
@pytest.mark.parametrize(
    "name", sorted({**settings.TICKS, **settings.HOST_TICKS}.keys() - ONE_BY_ONE)
)
def test_its_statements_do_not_grow_with_the_running_queries(
    stage: Stage, redis_client: redis.Redis, name: str
) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as seen:
            current_app.tasks[name].apply(throw=True)
        return len(seen)

    def run(*names: str) -> None:
        for one in names:
            stage.query(one)
            stage.start(one)
            stage.commit(one)

    stage.launcher.obliging = True
    run("a", "b")
    statements()  # what a first call writes
    few = statements()
    run("c", "d", "e", "f", "g")
    statements()
    assert statements() <= few
