"""Two hosts in one installation: each worker acts on its own host's drivers, and on no other's."""

from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from installation.machine import drivers
from queries.models.applications import Application
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Host
from queries.services.supervision.reconcile import reconcile, wake_all
from queries.services.system.installation import request_shutdown, resume
from tests.scenarios.stage import Stage

pytestmark = [pytest.mark.django_db, pytest.mark.sql]


class TwoHosts:
    """Two hosts, a launcher each, in one database; `on` names the one whose worker works."""

    def __init__(self, settings: Any) -> None:
        self.settings = settings
        self.stages = {"host-a": Stage(), "host-b": Stage()}
        for name in self.stages:
            self.sign(name)

    def sign(self, name: str, *, seconds_ago: float = 0, steady_for: float = 60) -> None:
        """Give a host's newest sign of life, and for how long none was late."""
        at = Now() - timedelta(seconds=seconds_ago)
        steady = Now() - timedelta(seconds=steady_for)
        fields = {"seen_at": at, "steady_since": steady}
        Host.objects.get_or_create(name=name)
        Host.objects.filter(name=name).update(**fields)

    def on(self, name: str) -> Stage:
        """Return the stage of a host, and let it be this process's host."""
        self.settings.HEADGATE_HOST = name
        return self.stages[name]

    def everywhere(self, rounds: int = 6) -> set[str]:
        """Have the hosts sweep in turns; return every phase that was seen."""
        seen = set()
        for turn in range(rounds):
            name = list(self.stages)[turn % 2]
            self.on(name).look()
            seen |= set(Application.objects.values_list("queries__phase", flat=True))
        return seen


@pytest.fixture
def hosts(settings: Any) -> TwoHosts:
    found = TwoHosts(settings)
    found.on("host-a").query("flights")
    found.on("host-a").up("flights")
    found.on("host-b").query("delays")
    found.on("host-b").up("delays")
    return found


def test_two_healthy_hosts_never_call_each_others_drivers_lost(hosts: TwoHosts) -> None:
    assert hosts.everywhere(24) == {"RUNNING"}
    assert {row.name: row.host for row in Application.objects.all()} == {
        "flights": "host-a",
        "delays": "host-b",
    }


@pytest.mark.guarantee("G-HOST-1")
def test_a_nudge_that_reaches_the_wrong_host_does_nothing(hosts: TwoHosts) -> None:
    stage = hosts.on("host-a")
    before = stage.row("delays").application
    assert not reconcile(before.pk, launcher=stage.launcher, now=stage.now)
    assert stage.phase("delays") == "RUNNING"
    assert stage.row("delays").application.version == before.version


def test_a_silent_hosts_query_is_lost_and_running_again_once_its_host_is_back(
    hosts: TwoHosts,
) -> None:
    hosts.sign("host-b", seconds_ago=8)
    hosts.on("host-a").look()
    assert hosts.stages["host-a"].phase("delays") == "RUNNING"

    hosts.sign("host-b", seconds_ago=16)
    stage = hosts.on("host-a")
    stage.look()
    lost = stage.row("delays")
    assert (lost.phase, lost.phase_detail.text) == (
        "UNREACHABLE",
        "Host host-b is not responding; the query may still run there. "
        "If the host is gone for good, declare it gone.",
    )
    assert stage.phase("flights") == "RUNNING"
    assert stage.driver("delays").end_wanted == ""
    assert hosts.stages["host-a"].launcher.living() == [("flights", 1)]

    hosts.sign("host-b")
    back = hosts.on("host-b")
    wake_all(now=back.now)
    back.settle()
    assert back.phases("delays")[-2:] == ["UNREACHABLE", "RUNNING"]
    assert Driver.objects.filter(application__name="delays").count() == 1
    assert hosts.everywhere() == {"RUNNING"}


def test_a_worker_whose_own_signs_came_late_calls_nobody_lost(hosts: TwoHosts) -> None:
    """The database was away for a minute: whoever comes back first must not judge the other."""
    hosts.sign("host-b", seconds_ago=60)
    hosts.sign("host-a", steady_for=1)
    stage = hosts.on("host-a")
    stage.look()
    assert not reconcile(stage.row("delays").application.pk, launcher=stage.launcher, now=stage.now)
    assert stage.phase("delays") == "RUNNING"


def test_a_stopped_query_starts_again_where_its_checkpoint_is(hosts: TwoHosts) -> None:
    hosts.on("host-b").launcher.obliging = True
    hosts.on("host-b").stop("delays")
    hosts.on("host-b").look()
    assert hosts.stages["host-b"].phase("delays") == "STOPPED"

    asked = hosts.on("host-a")
    asked.start("delays")
    asked.look()
    assert asked.launcher.living() == [("flights", 1)]

    hosts.everywhere()
    assert hosts.stages["host-b"].driver("delays").host == "host-b"
    assert Driver.objects.filter(application__name="delays").count() == 2


def test_a_query_whose_checkpoint_is_on_a_silent_host_waits_and_says_for_which(
    hosts: TwoHosts,
) -> None:
    hosts.on("host-b").launcher.obliging = True
    hosts.on("host-b").stop("delays")
    hosts.on("host-b").look()
    hosts.sign("host-b", seconds_ago=16)

    asked = hosts.on("host-a")
    asked.start("delays")

    waiting = asked.row("delays")
    assert (waiting.phase, waiting.phase_reason) == ("PENDING", "HOST_SILENT")
    assert "Its checkpoint is on host host-b, which is not responding" in waiting.phase_detail.text
    assert asked.launcher.living() == [("flights", 1)]

    hosts.sign("host-b")
    hosts.everywhere()
    assert hosts.stages["host-b"].driver("delays").host == "host-b"
    assert hosts.stages["host-b"].phase("delays") in {"STARTING", "RUNNING"}


def test_a_stopped_query_with_its_checkpoint_in_shared_storage_starts_on_a_living_host(
    hosts: TwoHosts,
) -> None:
    hosts.on("host-b").launcher.obliging = True
    hosts.on("host-b").stop("delays")
    hosts.on("host-b").look()
    Checkpoint.objects.filter(query__name="delays").update(location="s3a://flights/delays")
    hosts.sign("host-b", seconds_ago=16)

    asked = hosts.on("host-a")
    asked.start("delays")

    assert asked.driver("delays").host == "host-a"
    assert asked.row("delays").application.host == "host-a"


def test_work_that_is_placed_nowhere_is_taken_by_one_host(hosts: TwoHosts) -> None:
    stage = hosts.on("host-a")
    stage.query("hours")
    assert stage.row("hours").application.host == ""
    stage.start("hours")
    hosts.everywhere()
    assert Driver.objects.filter(application__name="hours").count() == 1
    assert stage.row("hours").application.host == "host-a"


def test_ending_a_hosts_drivers_leaves_the_other_hosts_rows_alone(
    hosts: TwoHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = hosts.on("host-b")
    monkeypatch.setattr(drivers, "launcher", lambda: there.launcher)
    there.launcher.obliging = True

    drivers.end(now=there.now, limit_s=1)

    ended = {row.host: row.end_wanted for row in Driver.objects.all()}
    assert ended == {"host-a": "", "host-b": "SHUTDOWN"}


def test_stopping_one_host_leaves_the_other_running(hosts: TwoHosts) -> None:
    for stage in hosts.stages.values():
        stage.launcher.obliging = True
    request_shutdown(now=hosts.on("host-b").now)
    hosts.everywhere()
    assert hosts.stages["host-a"].phase("flights") == "RUNNING"
    assert hosts.stages["host-a"].phase("delays") == "PENDING"

    resume(now=hosts.on("host-a").now)  # of the other host: it changes nothing here
    hosts.everywhere()
    assert hosts.stages["host-a"].phase("delays") == "PENDING"

    resume(now=hosts.on("host-b").now)
    hosts.everywhere()
    assert hosts.stages["host-b"].driver("delays").host == "host-b"
    assert hosts.stages["host-a"].phase("delays") in {"STARTING", "RUNNING"}
