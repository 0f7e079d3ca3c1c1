"""The rows of an application are read with two questions, whatever there is of them."""

import pytest
from django.conf import settings
from django.db import connection
from django.test.utils import CaptureQueriesContext

from queries.domain.states import DriverState, RunOutcome
from queries.models.definitions import Checkpoint
from queries.models.drivers import Host
from queries.selectors.supervision.observation import Rows, read_rows
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


def _read(stage: Stage, name: str, questions: int = 2) -> Rows:
    with CaptureQueriesContext(connection) as asked:
        rows = read_rows(stage.row(name).application_id)
    assert len(asked) == questions + 1, [one["sql"] for one in asked]  # one for `row` itself
    assert rows is not None
    return rows


def test_two_questions_bring_all_that_is_looked_at(stage: Stage) -> None:
    stage.query("a")
    stage.query("b", "a")
    stage.query("never", "a")
    stage.start("a")
    stage.start("b")
    rows = _read(stage, "a")
    with CaptureQueriesContext(connection) as later:
        assert rows.driver is not None
        assert rows.driver.application == rows.application
        assert [query.name for query in rows.queries] == ["a", "b", "never"]
        assert {query.application for query in rows.queries} == {rows.application}
        assert sorted(rows.runs) == [query.pk for query in rows.queries[:2]]
        for query in rows.queries[:2]:
            run = rows.runs[query.pk]
            assert (run.query, run.driver) == (query, rows.driver)
            assert run.revision == query.target_revision
            assert run.checkpoint is rows.checkpoints[query.pk]
    assert len(later) == 0
    assert rows.locations == tuple(f"file:///checkpoints/{name}" for name in ("a", "b", "never"))


def test_what_has_ended_is_not_among_them(stage: Stage) -> None:
    stage.query("a")
    stage.start("a")
    run, driver = stage.run("a"), stage.driver("a")
    type(run).objects.filter(pk=run.pk).update(outcome=RunOutcome.STOPPED)
    type(driver).objects.filter(pk=driver.pk).update(state=DriverState.ENDED)
    rows = _read(stage, "a")
    assert rows.driver is None
    assert rows.runs == {}


def test_the_current_checkpoint_counts_where_the_run_is_on_a_retired_one(stage: Stage) -> None:
    stage.query("a")
    stage.start("a")
    run = stage.run("a")
    Checkpoint.objects.filter(pk=run.checkpoint_id).update(retired_at=stage.now)
    assert _read(stage, "a").checkpoints == {}
    newer = Checkpoint.objects.create(
        query=stage.row("a"), location="file:///checkpoints/newer", created_at=stage.now
    )
    rows = _read(stage, "a")
    assert rows.checkpoints == {run.query_id: newer}
    assert rows.runs[run.query_id].checkpoint_id == run.checkpoint_id


@pytest.mark.parametrize(
    ("driver", "application", "stopping"),
    [
        ("one", "two", "one"),  # where its driver is
        (None, "two", "two"),  # where it was put
        (None, "", ""),  # "": here
        ("", "two", ""),
    ],
)
def test_it_waits_where_its_host_is_stopping(
    stage: Stage, driver: str | None, application: str, stopping: str
) -> None:
    stage.query("a")
    if driver is not None:
        stage.start("a")
        row = stage.driver("a")
        type(row).objects.filter(pk=row.pk).update(host=driver)
    place = stage.row("a").application
    type(place).objects.filter(pk=place.pk).update(host=application)
    for name in ("one", "two", settings.HEADGATE_HOST):
        Host.objects.update_or_create(name=name)
    assert not _read(stage, "a").paused
    named = Host.objects.filter(name=stopping or settings.HEADGATE_HOST)
    Host.objects.exclude(pk__in=named).update(stopping_since=stage.now)
    assert not _read(stage, "a").paused
    named.update(stopping_since=stage.now)
    Host.objects.exclude(pk__in=named).update(stopping_since=None)
    assert _read(stage, "a").paused
