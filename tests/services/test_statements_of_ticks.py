"""No tick asks the database more often because more queries run: it would be late one day."""

import pytest
import redis
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.module_loading import import_string

from controlplane.ticks import TICKS
from tests.conftest_redis import redis_client, valkey
from tests.scenarios.stage import Stage

__all__ = ["redis_client", "valkey"]  # fixtures

pytestmark = pytest.mark.sql

#: Ticks that work on one row after the other, and only on those that are due.
ONE_BY_ONE = {"queries.ticks.sweep"}


@pytest.mark.redis
@pytest.mark.parametrize("name", sorted({tick.function for tick in TICKS} - ONE_BY_ONE))
def test_its_statements_do_not_grow_with_the_running_queries(
    stage: Stage, redis_client: redis.Redis, name: str
) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as seen:
            import_string(name)()
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
