"""The upgrade binds the secrets that are in use, to who names them and for where they go."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE, AFTER = "0019_teams", "0020_secret_bindings"
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


def _kafka(server: str, secret: str) -> dict[str, Any]:
    options = {"kafka.bootstrap.servers": server, "kafka.sasl.jaas.config": secret}
    return {"sources": [{"name": "in", "format": "kafka", "options": options}]}


def test_newest_pinned_and_running_definitions_keep_their_secrets(old: Any) -> None:
    tables = {name: old.get_model("queries", name) for name in ("Application", "Query", "Driver")}
    orders = tables["Application"].objects.create(name="orders", created_at=AT)
    first = orders.revisions.create(
        number=1, spec={"env": {"T": "env:OF_ITS_DRIVER"}}, author="a", created_at=AT
    )
    orders.revisions.create(
        number=2, spec={"conf": {"spark.x": "env:NEWEST"}}, author="a", created_at=AT
    )
    query = tables["Query"].objects.create(
        name="delays", application=orders, created_at=AT, phase_since=AT
    )
    revisions = [
        query.revisions.create(number=n, kind="sql", spec=spec, author="a", created_at=AT)
        for n, spec in enumerate(
            (
                _kafka("forgotten:9092", "file:forgotten"),
                _kafka("runs:9092", "file:jaas"),
                _kafka("pinned:9092", "file:jaas"),
                _kafka("one:9092,Two:9092", "file:jaas"),
            ),
            1,
        )
    ]
    query.target_revision = revisions[2]
    query.save()
    driver = tables["Driver"].objects.create(
        application=orders,
        application_revision=first,
        epoch=1,
        host="h",
        state="LIVE",
        state_since=AT,
        created_at=AT,
        directory="/d",
    )
    checkpoint = old.get_model("queries", "Checkpoint").objects.create(
        query=query, location="file:///c", created_at=AT
    )
    old.get_model("queries", "Run").objects.create(
        query=query,
        driver=driver,
        epoch=2,
        checkpoint=checkpoint,
        revision=revisions[1],
        generation=1,
        created_at=AT,
    )
    deleted = tables["Application"].objects.create(name="gone", created_at=AT, archived_at=AT)
    deleted.revisions.create(number=1, spec={"env": {"T": "env:GONE"}}, author="a", created_at=AT)
    channel = old.get_model("queries", "Channel").objects
    about = {"created_at": AT, "created_by": "ada"}
    channel.create(name="hook", kind="webhook", settings={"url": "file:hook"}, **about)
    mail = {"host": "MX.example.org", "password": "file:smtp"}
    channel.create(name="mail", kind="mail", settings=mail, **about)

    new = _migrate(AFTER)

    bound = new.get_model("queries", "SecretBinding").objects.order_by("secret")
    assert {(row.secret, row.holder_kind, row.holder): row.hosts for row in bound} == {
        ("env:NEWEST", "application", "orders"): ["*"],
        ("env:OF_ITS_DRIVER", "application", "orders"): ["*"],
        ("file:jaas", "application", "orders"): [
            "runs:9092",
            "one:9092",
            "two:9092",
            "pinned:9092",
        ],
        ("file:hook", "channel", "hook"): ["*"],  # its host stands in the secret
        ("file:smtp", "channel", "mail"): ["mx.example.org:587"],
    }
    assert {row.given_by for row in bound} == {""}
    assert not new.get_model("queries", "GivenRoot").objects.exists()  # proposed, never given
