"""Parameters of a run: given at a start, kept by what supervision restarts, recorded by runs."""

from typing import Any

import pytest

from queries.domain.errors import Conflict, Invalid
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.services.supervision import operations
from queries.services.supervision.assignments import _entry
from queries.services.supervision.start_checks import StateChanges
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

SQL = "SELECT timestamp, value FROM flights WHERE value > :low"
BY_KEY = "SELECT value % 3 AS k, count(*) AS n FROM flights WHERE value > :low GROUP BY value % 3"
UPDATE = {"format": "noop", "output_mode": "update"}


def _start(stage: Stage, **how: Any) -> Query:
    query = stage.row("delays")
    operations.request_start(query=query, actor="olga", now=stage.now, **how)
    stage.settle()
    return stage.row("delays")


def _params(stage: Stage) -> list[Any]:
    return list(stage.row("delays").runs.order_by("epoch").values_list("params", flat=True))


def test_a_run_records_its_values_and_its_driver_gets_them(stage: Stage) -> None:
    stage.query("delays", sql=SQL, params={"low": 1})
    row = _start(stage, params={"low": 5})
    run = row.runs.get()
    assert (row.params, run.params) == ({"low": 5}, {"low": 5})
    assert _entry(run, None, run.checkpoint).spec["params"] == {"low": 5}


def test_a_restart_keeps_the_values_and_a_start_by_hand_has_the_defaults(stage: Stage) -> None:
    stage.query("delays", sql=SQL, params={"low": 1})
    stage.launcher.obliging = True
    row = _start(stage, params={"low": 5})
    operations.request_restart(query=row, actor="olga", now=stage.now)
    assert stage.row("delays").params == {"low": 5}
    stage.settle()
    stage.stop("delays")
    assert _start(stage).params is None
    assert _params(stage)[-1] == {"low": 1}


def test_a_start_with_other_values_does_not_join_one_that_runs(stage: Stage) -> None:
    stage.query("delays", sql=SQL, params={"low": 1})
    row = _start(stage)
    with pytest.raises(Conflict, match="other parameters"):
        operations.request_start(query=row, actor="olga", now=stage.now, params={"low": 5})
    with pytest.raises(Invalid):
        operations.request_start(query=row, actor="olga", now=stage.now, params={"high": 5})


def test_other_values_on_a_checkpoint_with_state_must_be_accepted(stage: Stage) -> None:
    stage.query("delays", sql=BY_KEY, sink=UPDATE, params={"low": 1})
    stage.up("delays")
    stage.launcher.obliging = True
    stage.stop("delays")
    with pytest.raises(StateChanges, match="low"):
        _start(stage, params={"low": 5})
    assert _start(stage, params={"low": 5}, accept_state_change=True).params == {"low": 5}


def test_a_driver_of_the_last_release_knows_every_field_of_a_query_that_uses_nothing_new(
    stage: Stage,
) -> None:
    threshold = {"figure": "late_rows", "value": 5}
    stage.query("delays", sql=SQL.partition(" WHERE")[0], thresholds=[threshold])
    run = _start(stage).runs.get()
    assert not {"params", "schedule", "thresholds"} & set(_entry(run, None, run.checkpoint).spec)


def test_a_run_that_the_last_release_created_has_the_values_of_its_definition(stage: Stage) -> None:
    stage.query("delays", sql=SQL, params={"low": 1})
    run = _start(stage).runs.get()
    Run.objects.update(params=None)
    run.refresh_from_db()
    assert _entry(run, None, run.checkpoint).spec["params"] == {"low": 1}
