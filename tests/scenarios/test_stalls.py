"""A query stands still: it is told, and restarted only where its application says so."""

from datetime import timedelta

import pytest

from listeners.models import Latest
from queries.domain.states import Phase, Reason
from queries.models.drivers import Run
from queries.selectors.query_lines import query_line
from tests.scenarios.stage import Stage


@pytest.mark.parametrize(("acts", "runs"), [(False, 1), (True, 2)])
def test_a_stalled_query_is_restarted_where_its_policy_says_so(
    stage: Stage, acts: bool, runs: int
) -> None:
    stage.application("flights", policy={"restart_on_stall": acts})
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    stage.launcher.obliging = True
    run = stage.run("delays")
    Latest.objects.create(
        query=run.query_id, driver=run.driver_id, epoch=1, seq=1, run=run.pk, at=stage.now
    )
    stage.now += timedelta(minutes=30)
    line = query_line("delays", now=stage.now)
    assert line.health is not None
    assert line.health.verdict == "STALLED"
    stage.look()
    stage.wait(3)
    assert Run.objects.count() == runs
    assert stage.phase("delays") == Phase.RUNNING
    if acts:
        assert stage.run("delays").cause == Reason.STALLED
