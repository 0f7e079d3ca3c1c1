"""A database that another release made is refused in words, and nothing in it changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.recorder import MigrationRecorder

from controlplane.home import StartProblem
from installation.machine import preparation
from queries.releases import BEFORE_THE_FIRST_RELEASE, TablesRefused

NOW = datetime(2026, 11, 26, tzinfo=UTC)


@contextmanager
def applied(name: str) -> Iterator[None]:
    """Have the database say that a migration was applied which this release does not have."""
    recorder = MigrationRecorder(connection)
    recorder.record_applied("queries", name)
    try:
        yield
    finally:
        recorder.record_unapplied("queries", name)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "said", "way_out"),
    [
        (BEFORE_THE_FIRST_RELEASE, "created before release 0.1.0", "headgate export"),
        (
            "0099_of_tomorrow",
            "created by a later release: it contains the migration 0099",
            "Start that rel",
        ),
    ],
)
def test_a_database_of_another_release_is_refused_with_the_way_out(
    name: str, said: str, way_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with applied(name):
        with pytest.raises(TablesRefused, match=said) as refused:
            call_command("migrate", interactive=False, verbosity=0)
        assert way_out in refused.value.way_out
        monkeypatch.setattr(connections, "close_all", lambda: None)  # the test's own
        with pytest.raises(StartProblem, match=said) as trouble:
            preparation.prepare_database(NOW)
        assert way_out in trouble.value.way_out


@pytest.mark.django_db
def test_a_database_of_this_release_is_taken_again() -> None:
    call_command("migrate", interactive=False, verbosity=0)
