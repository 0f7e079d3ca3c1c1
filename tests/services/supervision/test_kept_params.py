"""Values given at a start: kept by whatever starts the query again without a user's start."""

from typing import Any

import pytest

from queries.domain.deploys.request import DeployState
from queries.models.definitions import Checkpoint
from queries.services.deploys.rollback import run_newest
from queries.services.supervision import operations
from queries.services.supervision.start_checks import StateChanges
from queries.services.system.installation import declare_host_gone
from tests.scenarios.deploys.way import Way
from tests.scenarios.stage import BROKEN_PIPE, NO_SUCH_SOURCE, Stage
from tests.scenarios.test_two_hosts import TwoHosts

pytestmark = pytest.mark.django_db

SQL = "SELECT timestamp, value FROM flights WHERE value > :low AND value < :high"
BY_KEY = "SELECT value % 3 AS k, count(*) AS n FROM flights WHERE value > :low GROUP BY value % 3"
DEFAULTS = {"low": 1, "high": 9}
GIVEN = {"low": 5, "high": 9}


def _up(stage: Stage, **spec: Any) -> Stage:
    """Have a query run with another value of `low` than its default."""
    stage.query("delays", **{"sql": SQL, "params": DEFAULTS, **spec})
    row = stage.row("delays")
    operations.request_start(query=row, actor="olga", now=stage.now, params={"low": 5})
    stage.settle()
    stage.ready("delays")
    stage.commit("delays")
    return stage


def test_a_retry_and_a_new_driver_keep_them(stage: Stage) -> None:
    first = _up(stage).run("delays").pk
    stage.fail("delays", BROKEN_PIPE)
    second = stage.run("delays")
    assert (second.pk != first, second.params) == (True, GIVEN)
    stage.launcher.die("delays", python="SIGKILL", jvm="SIGKILL")
    stage.look()
    assert (stage.run("delays").pk != second.pk, stage.run("delays").params) == (True, GIVEN)


def test_another_host_that_takes_the_query_keeps_them(settings: Any) -> None:
    hosts = TwoHosts(settings)
    _up(hosts.on("host-b"))
    Checkpoint.objects.update(location="s3a://flights/delays")
    hosts.sign("host-b", seconds_ago=settings.HOST_GONE_AFTER_S + 30)
    stage = hosts.on("host-a")
    application = stage.row("delays").application
    declare_host_gone(application=application, host="host-b", actor="olga", now=stage.now)
    stage.settle()
    assert (stage.run("delays").driver.host, stage.run("delays").params) == ("host-a", GIVEN)


def test_a_deploy_keeps_those_that_the_new_definition_still_has(stage: Stage) -> None:
    way = Way(stage)
    _up(stage)
    way.ask(way.manifest("delays", sql=SQL.replace(":high", "99"), params={"low": 1}))
    assert way.came_up("delays").state == DeployState.SUCCEEDED
    assert (stage.run("delays").revision.number, stage.run("delays").params) == (2, {"low": 5})


def test_a_deploy_that_mends_a_failed_query_keeps_them(stage: Stage) -> None:
    _up(stage)
    stage.fail("delays", NO_SUCH_SOURCE)
    stage.revise("delays", sql=SQL.replace("timestamp, ", ""))
    row = stage.row("delays")
    run_newest(row, actor="ada", now=stage.now, accept_state_change=True)
    stage.settle()
    stage.launcher.leave("delays")
    stage.look()
    assert (stage.run("delays").revision.number, stage.run("delays").params) == (2, GIVEN)


def test_state_written_with_them_is_continued_with_others_only_if_accepted(stage: Stage) -> None:
    _up(stage, sql=BY_KEY, params={"low": 1}, sink={"format": "noop", "output_mode": "update"})
    stage.launcher.obliging = True
    how: dict[str, Any] = {"actor": "olga", "now": stage.now}
    stage.restart("delays")  # with the same: nothing to accept
    stage.wait(10)
    with pytest.raises(StateChanges, match="low"):
        operations.request_restart(query=stage.row("delays"), params={"low": 6}, **how)
    stage.stop("delays")
    with pytest.raises(StateChanges, match="low"):  # the default is another value too
        operations.request_start(query=stage.row("delays"), **how)
    operations.request_start(query=stage.row("delays"), accept_state_change=True, **how)
    stage.wait(10)
    assert stage.last_run("delays").params == {"low": 1}
    stage.fail("delays", BROKEN_PIPE)
    assert stage.last_run("delays").params == {"low": 1}
