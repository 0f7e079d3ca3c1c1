"""The drivers' folder goes while drivers live, and comes back: no query notices."""

import pytest

from queries.domain.states import DriverState, Phase
from queries.models.drivers import Driver
from queries.services.supervision.adoption import end_strays, without_files
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


def test_a_query_runs_on_while_the_files_of_its_driver_are_away(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    run = stage.run("delays").pk
    stage.launcher.files_lost = True
    stage.wait(600)  # far beyond every deadline of a start
    assert (stage.phase("delays"), stage.run("delays").pk) == (Phase.RUNNING, run)
    assert without_files(stage.launcher.living(), launcher=stage.launcher) == ["delays (epoch 1)"]
    stage.launcher.files_lost = False
    stage.wait(10)
    assert (stage.phase("delays"), stage.run("delays").pk) == (Phase.RUNNING, run)
    assert without_files(stage.launcher.living(), launcher=stage.launcher) == []
    assert [driver.state for driver in Driver.objects.all()] == [DriverState.LIVE]


def test_a_driver_that_starts_without_its_files_is_replaced(stage: Stage) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.launcher.files_lost = True
    stage.wait(300)
    assert stage.launcher.living() == [("delays", stage.driver("delays").epoch)]
    assert len(stage.launcher.epochs("delays")) > 1


def test_a_stop_reaches_a_driver_without_its_files(stage: Stage) -> None:
    stage.launcher.obliging = True
    stage.query("delays")
    stage.start("delays")
    stage.look()
    assert stage.phase("delays") == Phase.RUNNING
    stage.launcher.files_lost = True
    stage.stop("delays")
    stage.wait(300)
    assert stage.phase("delays") == Phase.STOPPED
    assert stage.launcher.living() == []


def test_a_driver_that_lives_though_its_row_has_ended_is_ended_and_no_other(stage: Stage) -> None:
    stage.application("flights")
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    stage.query("other")
    stage.up("other")
    assert end_strays(launcher=stage.launcher) == []
    row = stage.driver("flights")
    Driver.objects.filter(pk=row.pk).update(state=DriverState.ENDED)
    assert end_strays(launcher=stage.launcher) == [("flights", row.epoch)]
    assert stage.launcher.living() == [("other", stage.driver("other").epoch)]


def test_a_driver_that_the_database_does_not_know_is_named_and_left_alone(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.query("delays")
    stage.up("delays")
    Driver.objects.update(epoch=77)  # as an older copy of the database would
    assert end_strays(launcher=stage.launcher) == []
    assert "driver 1 of delays is alive but has no row" in caplog.text
    assert stage.launcher.living() == [("delays", 1)]


@pytest.mark.guarantee("G-EXIT-2")
def test_a_driver_of_another_host_is_left_to_that_host(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    Driver.objects.update(state=DriverState.ENDED, host="another")
    assert end_strays(launcher=stage.launcher) == []
