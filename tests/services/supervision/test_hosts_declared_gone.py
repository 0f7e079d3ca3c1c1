"""A host is away for good: each verb says so at once, and declaring it gone ends the circle."""

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from queries import ticks
from queries.domain.errors import Invalid, NotAllowed
from queries.domain.states import Desired, DriverState, OperationOutcome, RunOutcome
from queries.models.access.audit import AuditEntry
from queries.models.applications import Application
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Host
from queries.models.history import Operation
from queries.selectors.supervision import senders
from queries.services.checkpoints.rewind_and_reset import request_reset, request_rewind
from queries.services.checkpoints.source_starts import WantedStart
from queries.services.local_roots import allowed_paths, default_checkpoint
from queries.services.procedures import engine
from queries.services.supervision import hosts as signs
from queries.services.supervision.operations import archive_query
from queries.services.system.installation import declare_host_gone
from queries.tasks import PROCEDURES
from tests.scenarios.stage import Stage
from tests.scenarios.test_two_hosts import TwoHosts

pytestmark = pytest.mark.django_db


@pytest.fixture
def hosts(settings: Any) -> TwoHosts:
    """Return two hosts, of which the second has been silent for a minute and a half."""
    found = TwoHosts(settings)
    found.on("host-a").query("flights")
    found.on("host-a").up("flights")
    found.on("host-b").query("delays")
    found.on("host-b").up("delays")
    found.sign("host-b", seconds_ago=90)
    found.on("host-a").look()
    return found


def declare(stage: Stage, host: str = "host-b", name: str = "delays") -> Operation:
    application = stage.row(name).application
    operation = declare_host_gone(application=application, host=host, actor="olga", now=stage.now)
    stage.settle()
    return operation


# --- what verbs say -----------------------------------------------------------------------


def test_a_stop_says_at_once_when_it_takes_effect(hosts: TwoHosts) -> None:
    stage = hosts.on("host-a")
    operation = stage.stop("delays")
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.OPEN
    assert operation.detail.text.startswith("Host host-b has not responded since ")
    assert "The stop takes effect once it is back, or is declared gone." in operation.detail.text
    assert "declare it gone" in stage.row("delays").phase_detail.text


def test_a_restart_says_so_too_and_a_start_of_what_is_lost_is_refused(hosts: TwoHosts) -> None:
    stage = hosts.on("host-a")
    with pytest.raises(NotAllowed, match="waits for host host-b, which has not responded") as told:
        stage.start("delays")
    assert told.value.way_out == "Wait for that host, or declare it gone on the application's page."
    restart = stage.restart("delays")
    assert "The restart takes effect once it is back" in restart.detail.text


def test_a_delete_names_the_host_and_not_only_the_stop(hosts: TwoHosts) -> None:
    stage = hosts.on("host-a")
    stage.stop("delays")
    with pytest.raises(NotAllowed, match="may still run on host host-b") as told:
        archive_query(query=stage.row("delays"), actor="ada", now=stage.now)
    assert "declare it gone" in told.value.way_out


def test_what_needs_the_files_names_the_way_out(hosts: TwoHosts) -> None:
    stage = hosts.on("host-a")
    with pytest.raises(NotAllowed, match="is on host host-b") as told:
        request_rewind(query=stage.row("delays"), batch=0, actor="ada", now=stage.now)
    assert "declare it gone on the application's page and then reset" in told.value.way_out


def test_a_verb_on_a_host_that_responds_says_nothing_of_it(hosts: TwoHosts) -> None:
    assert not hosts.on("host-a").stop("flights").detail


# --- the declaration ----------------------------------------------------------------------


def test_its_driver_counts_as_dead_and_its_query_waits_with_its_checkpoint(
    hosts: TwoHosts,
) -> None:
    stage = hosts.on("host-a")
    operation = declare(stage)
    assert operation.outcome == OperationOutcome.DONE
    assert operation.result == {"host": "host-b", "driver": 3, "stay": ["delays"], "move": []}
    driver = stage.driver("delays")
    assert (driver.state, driver.exit_python, driver.state_reason) == (
        DriverState.ENDED,
        "UNKNOWN",
        "HOST_GONE",
    )
    assert stage.last_run("delays").outcome == RunOutcome.DRIVER_ENDED
    waiting = stage.row("delays")
    assert (waiting.phase, waiting.phase_reason) == ("PENDING", "HOST_SILENT")
    assert "Reset it to start on another host" in waiting.phase_detail.text
    assert stage.phase("flights") == "RUNNING"
    entry = AuditEntry.objects.filter(details__verb="declare-host-gone").get()
    assert (entry.actor, entry.subject) == ("olga", "delays")


def test_an_open_stop_is_done_with_it_and_the_query_can_be_deleted(hosts: TwoHosts) -> None:
    stage = hosts.on("host-a")
    stop = stage.stop("delays")
    declare(stage)
    stop.refresh_from_db()
    assert stop.outcome == OperationOutcome.DONE
    assert stage.phase("delays") == "STOPPED"
    archive_query(query=stage.row("delays"), actor="ada", now=stage.now)


def test_a_query_with_its_checkpoint_in_shared_storage_starts_elsewhere_at_a_higher_epoch(
    hosts: TwoHosts,
) -> None:
    stage = hosts.on("host-a")
    Checkpoint.objects.filter(query__name="delays").update(location="s3a://flights/delays")
    before = stage.last_run("delays").epoch
    operation = declare(stage)
    assert operation.result["move"] == ["delays"]
    stage.ready("delays")
    run = stage.run("delays")
    assert (run.driver.host, run.epoch > before) == ("host-a", True)


@pytest.mark.guarantee("G-HOST-2")
@pytest.mark.parametrize("silent_s", [8, 30])
def test_a_host_that_was_heard_of_lately_cannot_be_declared_gone(
    hosts: TwoHosts, silent_s: int
) -> None:
    hosts.sign("host-b", seconds_ago=silent_s)
    with pytest.raises(
        NotAllowed, match=r"host-b (is sending heartbeats|has been silent for)"
    ) as no:
        declare(hosts.on("host-a"))
    assert "after 60 s of silence" in no.value.way_out
    assert hosts.stages["host-a"].driver("delays").end_wanted == ""


def test_nobody_is_declared_gone_while_all_are_silent(hosts: TwoHosts) -> None:
    hosts.sign("host-a", seconds_ago=90)
    with pytest.raises(NotAllowed, match="No other host sends heartbeats"):
        declare(hosts.on("host-a"))


def test_the_name_of_the_host_confirms_it(hosts: TwoHosts) -> None:
    with pytest.raises(Invalid, match="is not the host of delays"):
        declare(hosts.on("host-a"), host="host-a")


def test_its_driver_is_revoked_until_its_host_is_back(hosts: TwoHosts) -> None:
    stage = hosts.on("host-a")
    assert senders.revoked() == {}  # a silent host alone revokes nothing
    epoch, pk = stage.driver("delays").epoch, stage.driver("delays").pk
    stage.now = timezone.now()
    declare(stage)
    assert senders.revoked() == {pk: epoch}
    hosts.sign("host-b")
    assert senders.revoked() == {}
    hosts.on("host-a")
    hosts.sign("host-b", seconds_ago=-30)  # silent again, after it has ended what was given up
    assert senders.revoked() == {}


# --- what comes back ----------------------------------------------------------------------


def back(hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = hosts.on("host-b")
    monkeypatch.setattr(ticks, "launcher", lambda: stage.launcher)
    monkeypatch.setattr(signs, "launcher", lambda: stage.launcher)
    assert stage.launcher.living() == [("delays", 3)]  # it has run all the time
    return stage


def test_a_worker_that_comes_back_ends_what_was_given_up_before_it_signs(
    hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(hosts.on("host-a"))
    stage = back(hosts, monkeypatch)
    signs.returned()
    assert stage.launcher.living() == []
    assert Driver.objects.get(epoch=3).state == DriverState.ENDED


def test_a_worker_that_starts_ends_it_before_it_adopts_and_the_query_goes_on_there(
    hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(hosts.on("host-a"))
    stage = back(hosts, monkeypatch)
    hosts.sign("host-b")
    ticks.adopt()
    assert stage.launcher.living() == []
    stage.look("delays")
    stage.ready("delays")
    stage.commit("delays")
    assert stage.phase("delays") == "RUNNING"
    assert stage.driver("delays").host == "host-b"


@pytest.mark.guarantee("G-HOST-2")
def test_no_driver_starts_beside_one_that_was_given_up(
    hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was frozen: its reconcile goes on before anything else does."""
    declare(hosts.on("host-a"))
    stage = back(hosts, monkeypatch)
    hosts.sign("host-b")
    stage.look("delays")
    assert stage.launcher.living() == []  # nothing beside it, and it is gone
    stage.wait(3)
    assert stage.driver("delays").epoch > 3


def test_a_host_that_is_back_before_anybody_has_looked_kills_its_driver(
    hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = hosts.on("host-a")
    application = asked.row("delays").application
    declare_host_gone(application=application, host="host-b", actor="olga", now=asked.now)
    stage = back(hosts, monkeypatch)
    hosts.sign("host-b")
    stage.look("delays")
    assert stage.launcher.living() == []
    stage.wait(3)
    assert Driver.objects.get(epoch=3).state == DriverState.ENDED
    assert stage.row("delays").desired == Desired.RUNNING


# --- another host takes it ----------------------------------------------------------------


def take_steps(stage: Stage, operation: Operation) -> Operation:
    """Take every step of an operation on the host that works now."""
    for _ in range(8):
        engine.advance(
            operation.pk, procedures=PROCEDURES, launcher=stage.launcher, now=timezone.now()
        )
        stage.look("delays")
    operation.refresh_from_db()
    return operation


def test_a_reset_starts_the_query_on_another_host_below_that_ones_home(
    hosts: TwoHosts, settings: Any, tmp_path: Path
) -> None:
    stage = hosts.on("host-a")
    home = tmp_path / "a"
    settings.HEADGATE_HOME, settings.CHECKPOINTS_DIR = home, home / "checkpoints"
    Application.objects.filter(name="delays").update(own=True)
    old = Checkpoint.objects.filter(query__name="delays")
    old.update(location=f"file://{tmp_path}/b/checkpoints/delays", by_default=True)
    wish = WantedStart("earliest")
    with pytest.raises(NotAllowed, match="may still run on host host-b"):
        request_reset(query=stage.row("delays"), wish=wish, actor="ada", now=stage.now)

    declare(stage)
    asked = request_reset(query=stage.row("delays"), wish=wish, actor="ada", now=timezone.now())
    done = take_steps(stage, asked)

    assert done.outcome == OperationOutcome.DONE, (done.detail.text, done.steps)
    held = Checkpoint.objects.get(query__name="delays", retired_at=None)
    assert held.location == f"file://{home}/checkpoints/delays"
    assert (home / "checkpoints" / "delays").is_dir()
    assert stage.row("delays").application.host == "host-a"
    stage.ready("delays")
    assert stage.run("delays").driver.host == "host-a"


def test_an_application_does_not_leave_a_neighbours_checkpoint_behind(hosts: TwoHosts) -> None:
    stage = hosts.on("host-b")
    stage.query("hours", "delays")
    stage = hosts.on("host-a")
    declare(stage)
    with pytest.raises(NotAllowed, match="the checkpoints of hours are on that host too"):
        request_reset(
            query=stage.row("delays"), wish=WantedStart("earliest"), actor="ada", now=stage.now
        )


def test_the_host_that_runs_a_query_decides_where_its_checkpoint_lies(
    settings: Any, tmp_path: Path
) -> None:
    """It is defined where the web is, and taken by a host with another home."""
    hosts = TwoHosts(settings)
    homes = {name: tmp_path / name for name in ("host-a", "host-b")}
    for name, home in homes.items():
        Host.objects.filter(name=name).update(home=str(home))
    settings.HEADGATE_HOME = homes["host-a"]
    settings.CHECKPOINTS_DIR = homes["host-a"] / "checkpoints"
    hosts.on("host-a").query("hours")
    Application.objects.filter(name="hours").update(own=True)
    held = Checkpoint.objects.filter(query__name="hours")
    held.update(location=f"file://{homes['host-a']}/checkpoints/hours", by_default=True)

    settings.HEADGATE_HOME = homes["host-b"]
    settings.CHECKPOINTS_DIR = homes["host-b"] / "checkpoints"
    stage = hosts.on("host-b")
    stage.start("hours")
    assert held.get().location == f"file://{homes['host-b']}/checkpoints/hours"

    # It stays there: also for the web of the first host, which judges what comes by that home.
    hosts.on("host-a")
    settings.HEADGATE_HOME = homes["host-a"]
    settings.CHECKPOINTS_DIR = homes["host-a"] / "checkpoints"
    settings.ALLOWED_PATHS = [str(homes["host-a"] / "data"), "s3a://flights"]
    there, shared = str(homes["host-b"] / "data" / "in"), "s3a://flights/in"
    assert allowed_paths("hours").problem("path", there, str) is None
    assert allowed_paths("hours").problem("path", shared, str) is None
    assert allowed_paths("hours").problem("path", str(homes["host-a"] / "data"), str) is not None
    assert allowed_paths("days").problem("path", there, str) is not None
    place = default_checkpoint("days", "", avoid=set(), host="host-b")
    assert place == f"file://{homes['host-b']}/checkpoints/days"
