"""A second driver without queries waits beside an application's driver, and takes over from it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import LazySettings

from listeners.loops.backlogs import current
from queries import host_pressure
from queries.domain.hosts import Pressure
from queries.domain.states import DriverKind, DriverState, Phase, Reason
from queries.domain.supervision.observation import Sighting
from queries.domain.supervision.standbys import decide_standby
from queries.launchers.base import LaunchRefused
from queries.models.applications import Application
from queries.models.deploys import DeployChange
from queries.models.drivers import Driver, Installation
from queries.models.history import Failure
from queries.selectors.deploys.evidence import driver_since, runs_since
from queries.services.code.preparing import Frozen
from queries.services.supervision import assignments, standbys
from queries.services.supervision.reconcile import reconcile
from queries.services.supervision.standbys import fits
from tests.launchers.in_memory import Crash
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.sql


@pytest.fixture
def waiting(stage: Stage) -> Driver:
    """An application whose query runs and whose standby waits; return the standby."""
    stage.application("flights", standby="own")
    stage.query("delays", "flights")
    return stage.stands_by("delays", "flights")


def launches(stage: Stage) -> int:
    """Return how many drivers were launched."""
    return sum(call.verb == "launch" for call in stage.launcher.calls)


def test_a_standby_waits_once_its_driver_is_calm(stage: Stage) -> None:
    stage.application("flights", standby="own")
    stage.query("delays", "flights")
    stage.start("delays")
    stage.ready("flights")
    stage.wait(10)
    assert launches(stage) == 1  # no commit yet: the query has the cores for itself
    stage.commit("delays")
    stage.wait(5)
    standby = stage.standby("flights")
    assert launches(stage) == 2
    assert stage.launcher.spec("flights", epoch=standby.epoch).standby
    assert (standby.state, standby.kind) == (DriverState.STARTING, DriverKind.STANDBY)
    assert standby.state_reason == Reason.STANDS_BY
    assert stage.driver("flights").state == DriverState.LIVE


def test_a_standby_does_not_start_beside_a_first_batch_that_may_still_come(stage: Stage) -> None:
    stage.application("flights", standby="own")
    stage.query("delays", "flights")
    stage.start("delays")
    stage.ready("flights")
    stage.launcher.idle(stage.run("delays").pk)  # its first trigger found nothing to read
    stage.wait(12)
    assert stage.phase("delays") == Phase.RUNNING
    assert launches(stage) == 1
    stage.wait(10)
    assert launches(stage) == 2  # nothing comes: it would wait for ever


def test_a_standby_takes_over_when_the_driver_dies(stage: Stage, waiting: Driver) -> None:
    before, launched = stage.driver("flights"), launches(stage)
    stage.launcher.die("flights")
    stage.look("flights")
    now = stage.driver("flights")
    assert (now.pk, now.kind) == (waiting.pk, DriverKind.SERVICE)
    assert now.state_reason == Reason.TOOK_OVER
    assert now.took_over_at == stage.now
    assert stage.run("delays").driver_id == waiting.pk
    assert Driver.objects.get(pk=before.pk).exit_python == "SIGKILL"
    assert launches(stage) == launched  # nothing had to be started
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING
    stage.wait(10)
    assert stage.standby("flights").epoch > waiting.epoch  # the next one


def test_a_restart_by_an_operator_is_served_by_the_standby(stage: Stage, waiting: Driver) -> None:
    stage.launcher.obliging = True
    stage.restart("delays")
    stage.wait(3)
    assert stage.driver("flights").pk == waiting.pk
    assert stage.phase("delays") == Phase.RUNNING


def test_the_death_of_a_standby_is_nobodys_failure(stage: Stage, waiting: Driver) -> None:
    stage.launcher.die("flights", epoch=waiting.epoch)
    stage.wait(5)
    ended = Driver.objects.get(pk=waiting.pk)
    assert (ended.state, ended.exit_python) == (DriverState.ENDED, "SIGKILL")
    assert ended.state_reason == Reason.DRIVER_DIED
    assert not Failure.objects.exists()
    assert Application.objects.get(name="flights").failures == 0
    assert stage.phase("delays") == Phase.RUNNING
    assert stage.standby("flights").pk == waiting.pk
    stage.wait(10)
    assert stage.standby("flights").pk != waiting.pk


def test_standbys_that_die_again_and_again_are_launched_more_and_more_rarely(
    stage: Stage, waiting: Driver
) -> None:
    before = launches(stage)
    for _ in range(600):
        stage.wait(1)
        standby = stage.standby("flights")
        if standby.ended_at is None:
            stage.launcher.die("flights", epoch=standby.epoch)
    assert 4 <= launches(stage) - before <= 7
    assert stage.phase("delays") == Phase.RUNNING


def test_a_standby_that_has_died_does_not_take_over(stage: Stage, waiting: Driver) -> None:
    stage.launcher.die("flights", epoch=waiting.epoch)
    stage.launcher.die("flights")
    stage.look("flights")
    assert stage.driver("flights").pk > waiting.pk
    stage.ready("flights")
    stage.commit("delays")
    stage.wait(3)
    assert stage.phase("delays") == Phase.RUNNING
    assert Driver.objects.get(pk=waiting.pk).exit_python == "SIGKILL"


@pytest.mark.parametrize("point", ["before", "after"])
def test_a_worker_that_dies_while_a_standby_takes_over_loses_nothing(
    stage: Stage, waiting: Driver, point: str
) -> None:
    getattr(stage.launcher, f"crash_{point}").add("assign")
    stage.launcher.die("flights")
    with pytest.raises(Crash):
        stage.look("flights")
    stage.wait(2)
    assert stage.driver("flights").pk == waiting.pk
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING
    assert len(stage.launcher.assignment("flights").queries) == 1


def test_a_standby_of_an_older_definition_ends(stage: Stage, waiting: Driver) -> None:
    application = Application.objects.get(name="flights")
    newest = application.revisions.latest("number")
    application.revisions.create(
        number=2, spec=newest.spec | {"memory": "2g"}, author="ada", created_at=stage.now
    )
    application.target_revision = None
    application.save()
    stage.wait(2)
    assert Driver.objects.get(pk=waiting.pk).end_wanted == Reason.REPLACED


def test_changed_code_is_not_run_by_a_standby_that_has_the_old_one(stage: Stage) -> None:
    stage.application("flights", standby="own", python_path=["/code"])
    stage.query("delays", "flights")
    waiting = stage.stands_by("delays", "flights")
    stage.launcher.code_version = "2"
    stage.launcher.die("flights")
    stage.look("flights")
    stage.wait(3)
    assert stage.driver("flights").pk != waiting.pk
    assert stage.driver("flights").code_sha256 != waiting.code_sha256
    assert Driver.objects.get(pk=waiting.pk).end_wanted == Reason.REPLACED


def test_a_standby_ends_when_its_application_stops(stage: Stage, waiting: Driver) -> None:
    stage.launcher.obliging = True
    stage.stop("delays")
    stage.wait(5)
    assert stage.launcher.living() == []
    ended = Driver.objects.get(pk=waiting.pk)
    assert (ended.state, ended.exit_python) == (DriverState.ENDED, "0")
    assert ended.state_reason == Reason.NOT_WANTED


def test_a_standby_that_does_not_end_is_killed(stage: Stage, waiting: Driver) -> None:
    standbys.end(waiting, Reason.REPLACED, now=stage.now)
    stage.wait(90)
    assert Driver.objects.get(pk=waiting.pk).exit_python == "SIGKILL"


def test_a_standby_that_does_not_come_up_is_ended(stage: Stage) -> None:
    stage.application("flights", standby="own")
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    stage.wait(5)
    first = stage.standby("flights")
    stage.wait(200)
    ended = Driver.objects.get(pk=first.pk)
    assert (ended.end_wanted, ended.exit_python) == (Reason.START_TIMED_OUT, "SIGKILL")
    assert stage.phase("delays") == Phase.RUNNING


def test_a_standby_gives_its_memory_to_a_driver(
    stage: Stage, waiting: Driver, settings: LazySettings
) -> None:
    settings.DRIVER_MEMORY_BUDGET_MB = 2048
    stage.query("other")
    stage.launcher.obliging = True
    stage.start("other")
    assert stage.driver("other").state in (DriverState.STARTING, DriverState.LIVE)
    stage.wait(5)
    assert Driver.objects.get(pk=waiting.pk).state_reason == Reason.GIVEN_UP
    stage.wait(60)
    assert stage.standby("flights").pk == waiting.pk  # there is no room for another


def test_a_late_look_does_not_change_a_standby_that_has_taken_over(
    stage: Stage, waiting: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass has read the row; before it writes, the standby takes over."""
    decided = decide_standby

    def takes_over_meanwhile(*arguments: object) -> object:
        stage.launcher.die("flights")
        reconcile(waiting.application_id, launcher=stage.launcher, now=stage.now)
        return decided(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(standbys, "decide_standby", takes_over_meanwhile)
    standbys.end(waiting, Reason.REPLACED, now=stage.now)
    Driver.objects.filter(pk=waiting.pk).update(end_wanted="")
    standbys.keep_standby(waiting.application_id, launcher=stage.launcher, now=stage.now)
    row = Driver.objects.get(pk=waiting.pk)
    assert (row.kind, row.state) == (DriverKind.SERVICE, DriverState.STARTING)


def test_a_standby_whose_application_may_not_be_launched_any_more_does_not_take_over(
    stage: Stage, waiting: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An admin has withdrawn a secret: the refusal of the next launch says so."""

    def refused(*_: object) -> str:
        raise LaunchRefused("The secret file:PASSWORD was withdrawn.")

    monkeypatch.setattr(assignments, "driver_spec", refused)
    stage.launcher.die("flights")
    stage.look("flights")
    stage.wait(3)
    assert Driver.objects.get(pk=waiting.pk).end_wanted == Reason.REPLACED
    assert stage.phase("delays") == Phase.FAILED
    assert "was withdrawn" in str(Application.objects.get(name="flights").restart_block_reason)


def test_an_orphaned_standby_does_not_take_over(stage: Stage, waiting: Driver) -> None:
    stage.launcher.orphan("flights", epoch=waiting.epoch)
    stage.launcher.die("flights")
    stage.look("flights")
    assert stage.driver("flights").epoch > waiting.epoch
    stage.wait(3)
    assert Driver.objects.get(pk=waiting.pk).ended_at is not None


def test_a_deploy_finds_the_standby_that_took_over_after_its_restart(
    stage: Stage, waiting: Driver
) -> None:
    """Its epoch is older than the restart."""
    change = DeployChange(
        application=waiting.application,
        query=stage.row("delays"),
        with_driver=True,
        restarted_at=stage.now,
        restart_epoch=Installation.get().last_epoch,
    )
    assert driver_since(change) is None
    stage.launcher.obliging = True
    stage.restart("delays")
    stage.wait(3)
    found = driver_since(change)
    assert found is not None
    assert found.pk == waiting.pk
    assert [run.driver_id for run in runs_since(change, 1)] == [waiting.pk]


@pytest.mark.guarantee("G-START-2")
def test_a_standby_that_was_told_to_end_does_not_take_over(
    stage: Stage, waiting: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another application needs its memory, after a worker has seen that it is ready."""

    def given_up_meanwhile(standby: Driver, frozen: Frozen) -> bool:
        standbys.end(standby, Reason.GIVEN_UP, now=stage.now)
        return fits(standby, frozen)

    monkeypatch.setattr(standbys, "fits", given_up_meanwhile)
    stage.launcher.die("flights")
    stage.look("flights")
    row = Driver.objects.get(pk=waiting.pk)
    assert (row.kind, row.end_wanted) == (DriverKind.STANDBY, Reason.GIVEN_UP)
    stage.wait(2)
    assert stage.driver("flights").epoch > waiting.epoch


def test_a_standby_that_cannot_be_looked_at_keeps_the_others_from_nothing(
    stage: Stage, waiting: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.application("zoo", standby="own")
    stage.query("visits", "zoo")
    stage.up("visits", "zoo")
    sight = stage.launcher.sight

    def rotten(application: str, epoch: int, **more: Any) -> Sighting:
        if epoch == waiting.epoch:
            raise ValueError("its files are rotten")
        return sight(application, epoch, **more)

    monkeypatch.setattr(stage.launcher, "sight", rotten)
    stage.wait(5)
    assert stage.standby("zoo").state == DriverState.STARTING
    assert [one.about for one in current(datetime.now(UTC))] == ["flights"]


def test_an_application_that_wants_no_standby_has_none(stage: Stage) -> None:
    stage.query("delays")
    stage.keeps_standbys = True
    stage.up("delays")
    stage.wait(30)
    assert launches(stage) == 1


def test_a_standby_that_is_still_starting_takes_over_from_a_driver_that_dies(stage: Stage) -> None:
    stage.application("flights", standby="own")
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    stage.wait(5)
    standby, launched = stage.standby("flights"), launches(stage)
    assert standby.state == DriverState.STARTING
    stage.launcher.die("flights")
    stage.look("flights")
    now = stage.driver("flights")
    assert (now.pk, now.kind, now.state) == (standby.pk, DriverKind.SERVICE, DriverState.STARTING)
    assert launches(stage) == launched
    stage.ready("flights")
    stage.commit("delays")
    assert stage.phase("delays") == Phase.RUNNING


def test_a_standby_whose_start_is_stuck_does_not_take_over(stage: Stage) -> None:
    stage.application("flights", standby="own")
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    stage.wait(5)
    standby = stage.standby("flights")
    stage.now += timedelta(seconds=181)
    stage.launcher.die("flights")
    stage.look("flights")
    assert stage.driver("flights").pk != standby.pk


def test_standbys_that_are_given_up_are_launched_more_and_more_rarely(stage: Stage) -> None:
    stage.application("flights", standby="own")
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    before = launches(stage)
    stage.wait(3000)  # none ever comes up
    ended = Driver.objects.filter(kind=DriverKind.STANDBY, end_wanted=Reason.START_TIMED_OUT)
    assert ended.count() >= 3
    assert launches(stage) - before <= 10  # of 17 without a pause


@pytest.mark.guarantee("G-START-2")
def test_no_standby_starts_on_a_busy_host(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.application("flights", standby="own")
    stage.query("delays", "flights")
    with monkeypatch.context() as busy:
        busy.setattr(host_pressure, "read_pressure", lambda: Pressure(90.0, 50.0, 2))
        stage.up("delays", "flights")
        stage.wait(60)
        assert launches(stage) == 1
    stage.wait(5)
    assert launches(stage) == 2


def test_where_a_host_is_always_busy_standbys_start_if_an_admin_wants_that(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, settings: LazySettings
) -> None:
    settings.STANDBYS_WHEN_BUSY = True
    monkeypatch.setattr(host_pressure, "read_pressure", lambda: Pressure(90.0, 50.0, 2))
    stage.application("flights", standby="own")
    stage.query("delays", "flights")
    stage.up("delays", "flights")
    stage.wait(60)
    assert launches(stage) == 2


def test_a_standby_fits_whatever_the_limits_of_starts_are(
    stage: Stage, waiting: Driver, settings: LazySettings
) -> None:
    settings.START_DEADLINE_S, settings.START_MAX_S = 600, 3600
    assert fits(waiting, Frozen((), ""))
    stage.wait(5)
    assert stage.standby("flights").end_wanted == ""
