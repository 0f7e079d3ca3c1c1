"""start, stop, restart and delete, with the outcome as exit code."""

from datetime import timedelta

from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.utils import timezone

from queries.models.alerts import AlertRule
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Host
from tests.cli.conftest import Shell, token_of
from tests.scenarios.stage import BROKEN_PIPE, Stage


def test_queries_are_started_restarted_and_stopped_with_their_outcome(
    shell: Shell, stage: Stage
) -> None:
    for name in ("arrivals", "delays"):
        stage.query(name)
    started = shell("start", "arrivals", "delays", "--wait")
    assert "start of arrivals: DONE" in started.err
    assert "start of delays: DONE" in started.err
    assert stage.phase("delays") == "RUNNING"
    first = stage.run("delays").pk
    assert "restart of delays: DONE" in shell("restart", "delays", "--wait").err
    assert stage.run("delays").pk != first
    shell("stop", "--application", "delays", "--wait", "--mode", "now")
    assert stage.phase("delays") == "STOPPED"
    asked = shell("stop", "arrivals")
    assert "stop of arrivals: requested, operation " in asked.out


def test_what_does_not_start_is_a_failure_and_one_that_is_not_there_is_refused(
    shell: Shell, stage: Stage
) -> None:
    stage.query("delays")
    stage.launcher.obliging = False

    def work() -> None:
        stage.now = timezone.now()
        stage.settle()
        if stage.phase("delays") in ("PENDING", "STARTING") and stage.launcher.living():
            stage.ready("delays")
            if stage.phase("delays") == "STARTING":
                stage.fail("delays", BROKEN_PIPE)

    shell.meanwhile = work
    failed = shell("start", "delays", "--wait", code=2)
    assert "start of delays: FAILED" in failed.err
    assert "headgate describe failure" in failed.err
    refused = shell("stop", "nobody", "delays", code=1)
    assert "nobody:\nError: Not found" in refused.err
    assert stage.row("delays").desired == "STOPPED"  # the other was stopped all the same


def test_a_wait_that_is_over_says_what_it_waited_for(shell: Shell, stage: Stage) -> None:
    stage.query("delays")
    shell.meanwhile = None  # nobody supervises
    done = shell("start", "delays", "--wait", "--timeout", "1s", code=3)
    assert "Not done within 1s: start of delays" in done.err
    assert "--timeout" in done.err


def test_a_stopped_query_is_deleted_and_a_running_one_is_not(
    shell: Shell, stage: Stage, admin: User
) -> None:
    stage.application("idle")
    AlertRule.objects.create(name="late", created_at=stage.now, created_by="ada")
    for name in ("arrivals", "delays"):
        stage.query(name)
    stage.start("delays")
    trial = shell("delete", "query/arrivals", "delays", "--dry-run", code=1)
    assert trial.out == "query/arrivals would be deleted\n"
    assert "Not possible in the current state" in trial.err
    assert Query.objects.filter(archived_at=None).count() == 2
    of_aude, shell.env["HEADGATE_TOKEN"] = shell.env["HEADGATE_TOKEN"], token_of(admin)
    for kind, name in (("application", "idle"), ("alert-rule", "late")):
        assert "would be deleted" in shell("delete", kind, name, "--dry-run").out
        assert name in shell("get", kind, name).out
    shell.env["HEADGATE_TOKEN"] = of_aude
    done = shell("delete", "query", "delays", "arrivals", code=1)
    assert done.out == "query/arrivals deleted\n"
    assert "Not possible in the current state" in done.err
    living = Query.objects.filter(archived_at=None)
    assert [row.name for row in living] == ["delays"]
    assert "cannot be deleted with this command" in shell("delete", "team", "data", code=64).err


def test_a_verb_says_which_queries_are_meant(shell: Shell) -> None:
    assert "in exactly one way" in shell("stop", code=64).err
    assert "in exactly one way" in shell("stop", "delays", "--selector", "team=a", code=64).err
    assert "is not a duration" in shell("stop", "delays", "--timeout", "soon", code=64).err


def test_a_selector_says_which_queries_and_each_has_its_outcome(shell: Shell, stage: Stage) -> None:
    for name in ("arrivals", "delays", "weather"):
        stage.query(name)
    Query.objects.exclude(name="weather").update(labels={"team": "data"})
    meant = shell("start", "--selector", "team=data", "--dry-run")
    assert meant.out == "query/arrivals\nquery/delays\n"
    assert [row.desired for row in Query.objects.all()] == ["STOPPED"] * 3
    done = shell("start", "-l", "team=data,phase=STOPPED", "--wait")
    assert "  arrivals: DONE" in done.err
    assert "  delays: DONE" in done.err
    assert {name: stage.phase(name) for name in ("delays", "weather")} == {
        "delays": "RUNNING",
        "weather": "STOPPED",
    }
    assert "is not a valid condition" in shell("stop", "-l", "team", code=1).err
    assert "0 queries: none" in shell("stop", "-l", "team=nobody").err


def test_a_checkpoint_of_another_installation_is_taken_over_for_named_queries(
    shell: Shell, stage: Stage
) -> None:
    stage.query("delays")
    stage.start("delays")
    stage.ready("delays")
    stage.launcher.refuse(stage.run("delays").pk, "foreign")
    stage.look()
    shell.meanwhile = None
    for wrong in (("-l", "phase=FAILED"), ("delays", "--accept-state-change")):
        assert "named queries only" in shell("start", *wrong, "--take-over", "--yes", code=64).err
    assert Checkpoint.objects.get().takeover_at is None
    shell("start", "delays", "--take-over", "--yes")
    assert Checkpoint.objects.get().takeover_at is not None
    assert stage.row("delays").desired == "RUNNING"


def test_a_silent_host_is_declared_gone_for_the_named_applications(
    shell: Shell, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    Application.objects.update(host="host-b")
    Driver.objects.update(host="host-b")
    ago = timedelta(minutes=5)
    for name, seen in (("host-b", Now() - ago), ("host-a", Now() + ago)):
        Host.objects.create(name=name, seen_at=seen, steady_since=Now() - ago)
    shell.meanwhile = None

    asked = shell("stop", "delays")
    assert "; Host host-b has not responded since " in asked.out
    refused = shell("declare-host-gone", "host-a", "delays", "--yes", code=1)
    assert "is not the host of delays" in refused.err
    said = shell("declare-host-gone", "host-b", "delays", "--yes")
    assert said.out == (
        "delays: its driver is considered dead; waits for host-b or a reset: delays\n"
    )
    assert Driver.objects.get().end_wanted == "HOST_GONE"
