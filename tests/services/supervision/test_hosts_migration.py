"""Applications of a release without hosts are placed where their newest driver ran."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE, AFTER = "0009_culprit", "0010_hosts"
AT = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


def _migrate(name: str) -> Any:
    """Bring the tables to one migration; return its models."""
    MigrationExecutor(connection).migrate([("queries", name)])
    return MigrationExecutor(connection).loader.project_state([("queries", name)]).apps


@pytest.fixture
def old() -> Iterator[Any]:
    """Return the models of the release before, whose tables these are."""
    yield _migrate(BEFORE)
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes("queries"))


def test_an_application_is_placed_where_its_newest_driver_ran(old: Any) -> None:
    made = {}
    for name in ("flights", "delays", "never-started"):
        row = old.get_model("queries", "Application").objects.create(name=name, created_at=AT)
        made[name] = row, row.revisions.create(number=1, spec={}, author="ada", created_at=AT)
    drivers = (
        ("flights", 1, "old", "SERVICE"),
        ("flights", 2, "host-a", "SERVICE"),
        ("flights", 3, "host-b", "PROBE"),  # it was only asked something there
        ("delays", 4, "host-b", "SERVICE"),
    )
    for name, epoch, host, kind in drivers:
        application, revision = made[name]
        old.get_model("queries", "Driver").objects.create(
            application=application,
            application_revision=revision,
            epoch=epoch,
            host=host,
            kind=kind,
            state="ENDED",
            state_since=AT,
            created_at=AT,
            directory="/nowhere",
        )

    new = _migrate(AFTER)

    placed = dict(new.get_model("queries", "Application").objects.values_list("name", "host"))
    assert placed == {"flights": "host-a", "delays": "host-b", "never-started": ""}
    back = _migrate(BEFORE)
    assert back.get_model("queries", "Application").objects.count() == 3
