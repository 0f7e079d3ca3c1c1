"""What one host's worker leaves to another's: its operations, files, folders, queue and name."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db.models.functions import Now
from django.test import Client
from django.utils import timezone

from controlplane import nudge
from controlplane.celery import app
from queries.domain.errors import NotAllowed
from queries.domain.states import (
    Desired,
    DriverKind,
    DriverState,
    OperationOutcome,
    Phase,
    Verb,
)
from queries.domain.system import PartState
from queries.models.applications import Application
from queries.models.checkpoints import Snapshot, SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.models.drivers import Driver, Host
from queries.models.history import Operation
from queries.selectors.hosts import (
    OnAnotherHost,
    drivers_on_this_host,
    leads,
    logs_at,
    queue_of_application,
    silent_hosts,
)
from queries.selectors.kafka.sources import committed_at
from queries.selectors.supervision import health
from queries.services.checkpoints import snapshot
from queries.services.kafka.lag import look_at_sources
from queries.services.probes.inspections import forget_old_results
from queries.services.procedures import engine
from queries.services.procedures.engine import (
    DONE,
    Procedure,
    ProcedureStep,
    StepContext,
    StepResult,
)
from queries.services.supervision import hosts as service
from queries.services.supervision.reconcile import prune_folders, wake_all
from queries.services.system import health as system
from queries.services.system import installation
from tests.conftest_redis import redis_client, valkey
from tests.launchers.in_memory import InMemoryLauncher
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

__all__ = ["redis_client", "valkey"]  # fixtures

HERE, THERE = "host-a", "host-b"


@pytest.fixture(autouse=True)
def _here(settings: Any) -> None:
    settings.HEADGATE_HOST = HERE
    sign(HERE)
    sign(THERE)


def sign(name: str, *, seconds_ago: float = 0) -> None:
    """Give a host's newest sign of life; none of those before was late."""
    Host.objects.get_or_create(name=name)
    at = Now() - timedelta(seconds=seconds_ago)
    Host.objects.filter(name=name).update(seen_at=at, steady_since=Now() - timedelta(minutes=5))


@pytest.fixture
def there(stage: Stage, tmp_path: Path) -> Stage:
    """Return a stage on which `delays` runs on the other host; its files could be read here."""
    stage.query("delays")
    stage.up("delays")
    Application.objects.update(host=THERE)
    Driver.objects.update(host=THERE)
    (tmp_path / "delays" / "commits").mkdir(parents=True)
    (tmp_path / "delays" / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    Checkpoint.objects.update(location=f"file://{tmp_path}/delays")
    return stage


# --- operations ---------------------------------------------------------------------------


class Bench:
    """A procedure of two steps that notes which of them were taken."""

    def __init__(self) -> None:
        self.taken: list[str] = []

        def act(name: str) -> Any:
            def step(turn: StepContext) -> StepResult:
                self.taken.append(name)
                return DONE if name == "copy" or self.ready else engine.waiting("not yet")

            return step

        self.ready = False
        steps = (ProcedureStep("Copy", act("copy")), ProcedureStep("Switch", act("switch")))
        self.procedure = Procedure(Verb.REWIND, steps, limit=timedelta(minutes=10))

    def begin(self, stage: Stage) -> Operation:
        query = stage.row("delays")
        return engine.begin(
            self.procedure, query=query, arguments={}, actor="ada", now=timezone.now()
        )

    def advance(self, operation: Operation) -> bool:
        return engine.advance(
            operation.pk,
            procedures={Verb.REWIND: self.procedure},
            launcher=InMemoryLauncher(),
            now=timezone.now(),
        )


def test_the_steps_of_another_hosts_query_are_taken_there(there: Stage, settings: Any) -> None:
    bench = Bench()
    operation = bench.begin(there)
    assert engine.due_operations(now=timezone.now()) == []
    assert not bench.advance(operation)
    assert bench.taken == []

    settings.HEADGATE_HOST = THERE
    assert engine.due_operations(now=timezone.now()) == [operation.pk]
    assert bench.advance(operation)
    assert bench.taken == ["copy", "switch"]


def test_all_steps_of_an_operation_are_taken_on_the_host_of_its_first(
    stage: Stage, settings: Any
) -> None:
    stage.query("delays")  # it has never run: any host may begin
    bench = Bench()
    operation = bench.begin(stage)
    assert bench.advance(operation)

    settings.HEADGATE_HOST = THERE
    assert engine.due_operations(now=timezone.now()) == []
    assert not bench.advance(operation)
    assert bench.taken == ["copy", "switch"]


def test_an_operation_says_that_its_host_is_silent(there: Stage) -> None:
    operation = Bench().begin(there)
    engine.note_silent_hosts()
    operation.refresh_from_db()
    assert operation.detail.text == ""

    sign(THERE, seconds_ago=16)
    engine.note_silent_hosts()
    operation.refresh_from_db()
    assert "Its files are on host host-b, which is not responding" in operation.detail.text
    assert operation.outcome == OperationOutcome.OPEN


# --- files --------------------------------------------------------------------------------


@pytest.mark.guarantee("G-HOST-1")
def test_a_checkpoint_on_another_host_is_not_read_here(there: Stage) -> None:
    location = Checkpoint.objects.get().location
    with pytest.raises(OnAnotherHost, match="is on host host-b"):
        logs_at(location)
    assert committed_at(location) == {}
    with pytest.raises(NotAllowed) as refused:
        snapshot.request_snapshot(query=there.row("delays"), actor="ada", now=there.now)
    assert "is on host host-b" in str(refused.value)
    assert refused.value.way_out == "Open Headgate on host host-b."

    Application.objects.update(host=HERE)
    assert logs_at(location).last_commit() == 0


def test_the_checkpoints_page_and_the_log_say_where_their_files_are(
    there: Stage, client: Client, admin_user: User
) -> None:
    client.force_login(admin_user)
    page = client.get("/queries/delays/checkpoint/").content.decode()
    assert "The files of this checkpoint are on host host-b." in page
    assert "Snapshot…" not in page
    page = client.get("/queries/delays/log/").content.decode()
    assert "is on host host-b. Open Headgate on that host" in page
    answer = client.get(f"/api/v1/runs/{there.run('delays').pk}/log/")
    assert answer.status_code == 409
    assert "is on host host-b" in answer.content.decode()


def test_commits_on_another_host_are_no_evidence_about_a_silent_query(
    there: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []

    def stat(path: Path, **_: Any) -> Any:
        looked.append(str(path))
        raise OSError

    monkeypatch.setattr(Path, "stat", stat)
    long_after = there.now + timedelta(hours=1)
    query = there.row("delays")
    health.healths([query], {query.pk: there.run("delays")}, now=long_after)
    assert looked == []
    Driver.objects.update(host=HERE)
    health.healths([query], {query.pk: there.run("delays")}, now=long_after)
    [location] = Checkpoint.objects.values_list("location", flat=True)
    assert looked == [f"{location.removeprefix('file://')}/commits"]


def test_only_folders_of_this_hosts_drivers_are_pruned(there: Stage) -> None:
    there.query("flights")
    there.up("flights")
    prune_folders(launcher=there.launcher)
    pruned = [call.application for call in there.launcher.calls if call.verb == "prune"]
    assert pruned == ["flights"]


def test_only_this_hosts_snapshots_are_pruned(there: Stage, tmp_path: Path, settings: Any) -> None:
    settings.SNAPSHOTS_KEPT = 0
    place = tmp_path / "kept"
    place.mkdir()
    row = Snapshot.objects.create(
        checkpoint=Checkpoint.objects.get(), batch=0, location=f"file://{place}", taken_at=there.now
    )
    assert snapshot.prune(launcher=InMemoryLauncher(), now=there.now) == 0
    assert place.exists()

    snapshot.remove_snapshot(row, now=there.now)  # by a person: its own host removes the files
    assert place.exists()
    settings.HEADGATE_HOST = THERE
    snapshot.prune(launcher=InMemoryLauncher(), now=there.now)
    assert not place.exists()


def test_only_this_hosts_xray_rows_are_forgotten(there: Stage) -> None:
    ended = there.now - timedelta(hours=2)
    fields = {"kind": DriverKind.PROBE, "state": DriverState.ENDED, "ended_at": ended}
    Driver.objects.update(**fields)
    forgotten: list[int] = []

    class Launcher(InMemoryLauncher):
        def forget_result(self, application: str, epoch: int) -> None:
            forgotten.append(epoch)

    forget_old_results(launcher=Launcher(), now=there.now)
    assert forgotten == []
    Driver.objects.update(host=HERE)
    forget_old_results(launcher=Launcher(), now=there.now)
    assert forgotten == [there.driver("delays").epoch]


def test_the_lag_of_another_hosts_query_is_neither_looked_at_nor_forgotten(there: Stage) -> None:
    row = SourceLag.objects.create(
        query=there.row("delays"), source="flights", partition=0, seen_at=there.now
    )
    look_at_sources(now=there.now)
    assert SourceLag.objects.filter(pk=row.pk).exists()
    Application.objects.update(host=HERE)
    look_at_sources(now=there.now)  # it reads no Kafka (any more)
    assert not SourceLag.objects.exists()


def test_a_driver_without_a_row_is_judged_everywhere(there: Stage) -> None:
    driver = there.driver("delays").pk
    assert drivers_on_this_host({driver, 4711}) == {4711}


# --- whose turn ---------------------------------------------------------------------------


@pytest.mark.guarantee("G-HOST-1")
def test_a_worker_that_starts_wakes_its_own_applications_only(there: Stage) -> None:
    Application.objects.update(reconcile_after=None)
    wake_all(now=there.now)
    assert Application.objects.get().reconcile_after is None
    Application.objects.update(host=HERE)
    wake_all(now=there.now)
    assert Application.objects.get().reconcile_after == there.now


@pytest.mark.parametrize(
    ("wanted", "phase", "driver", "woken"),
    [
        (Desired.STOPPED, Phase.STOPPED, DriverState.ENDED, False),
        (Desired.STOPPED, Phase.COMPLETED, DriverState.FENCED, False),
        (Desired.RUNNING, Phase.STOPPED, DriverState.ENDED, True),
        (Desired.STOPPED, Phase.UNREACHABLE, DriverState.ENDED, True),
        (Desired.STOPPED, Phase.STOPPED, DriverState.STOPPING, True),
    ],
)
def test_only_applications_that_may_have_something_to_do_are_woken(
    there: Stage, wanted: Desired, phase: Phase, driver: DriverState, woken: bool
) -> None:
    """Thousands rest, and to reconcile one of them takes as long as one that works."""
    Application.objects.update(host=HERE, reconcile_after=None)
    Driver.objects.update(host=HERE, state=driver)
    Query.objects.update(desired=wanted, phase=phase)
    installation.resume(now=there.now)
    assert (Application.objects.get().reconcile_after is not None) is woken


@pytest.mark.redis
def test_nudges_go_to_the_queues_of_living_hosts(
    there: Stage,
    redis_client: redis.Redis,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    django_capture_on_commit_callbacks: Any,
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(app, "send_task", lambda name, queue, **_: sent.append(queue))
    application, driver = Application.objects.get().pk, there.driver("delays").pk
    with django_capture_on_commit_callbacks(execute=True):
        nudge.reconcile_soon(application)
        nudge.reconcile_driver_soon(driver)
    assert sent == [f"{settings.QUEUE}.{THERE}"] * 2

    sent.clear()
    sign(THERE, seconds_ago=16)
    with django_capture_on_commit_callbacks(execute=True):
        nudge.reconcile_soon(application)
    assert sent == [settings.QUEUE]
    Application.objects.update(host="")
    assert queue_of_application(application) == settings.QUEUE


# --- the leader ---------------------------------------------------------------------------
@pytest.fixture
def claimed(db: None) -> None:
    """Give both hosts a worker."""
    Host.objects.update(claim="of a worker")


@pytest.mark.guarantee("G-HOST-3")
@pytest.mark.usefixtures("claimed")
def test_one_of_the_living_hosts_leads(settings: Any) -> None:
    found = []
    for host in (HERE, THERE):
        settings.HEADGATE_HOST = host
        found.append(leads())
    assert found == [True, False]


@pytest.mark.usefixtures("claimed")
@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_the_ticks_of_a_leader_that_is_gone_are_taken_over(settings: Any, end: str) -> None:
    settings.HEADGATE_HOST = THERE
    assert not leads()
    if end == "killed":
        sign(HERE, seconds_ago=16)
    else:
        Host.objects.filter(name=HERE).update(claim="")
    assert leads()


@pytest.mark.usefixtures("claimed")
def test_the_only_worker_leads_though_its_heartbeat_is_late() -> None:
    sign(HERE, seconds_ago=60)
    assert not leads()  # another one does
    sign(THERE, seconds_ago=60)
    assert leads()


# --- signs of life ------------------------------------------------------------------------


def test_a_claim_is_renewed_given_back_and_lost(settings: Any) -> None:
    settings.HEADGATE_HOST = "host-c"
    mine = service.this_worker()
    assert service.attempt(mine, None, take=True).free
    assert service.renew(mine)

    Host.objects.filter(name="host-c").update(claim="another", pid_space="elsewhere")
    assert not service.renew(mine)
    found = service.attempt(mine, None, take=True)
    assert not found.free  # it may live: its last sign is fresh, and its process cannot be seen
    assert not found.refused
    Host.objects.filter(name="host-c").update(seen_at=Now() + timedelta(seconds=1))
    assert service.attempt(mine, found.observed, take=True).refused
    sign("host-c", seconds_ago=16)
    assert service.attempt(mine, found.observed, take=True).free

    service.release(mine)
    assert Host.objects.get(name="host-c").claim == ""


def test_a_renewed_claim_is_shown_to_the_open_drivers_of_this_host(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.query("delays")
    stage.up("delays")
    monkeypatch.setattr(service, "launcher", lambda: stage.launcher)
    mine = service.this_worker()
    sign(HERE, seconds_ago=2)
    assert not service.renew(mine)
    assert stage.launcher.shown == []
    Host.objects.filter(name=HERE).update(claim=mine.claim)
    assert service.renew(mine)
    driver = stage.driver("delays")
    assert stage.launcher.shown == [(driver.application.name, driver.epoch)]


def test_a_late_sign_begins_a_new_steady_stretch(settings: Any) -> None:
    mine = service.this_worker()
    sign(HERE, seconds_ago=2)
    Host.objects.filter(name=HERE).update(claim=mine.claim)
    before = Host.objects.get(name=HERE).steady_since
    service.renew(mine)
    assert Host.objects.get(name=HERE).steady_since == before
    sign(HERE, seconds_ago=7)
    service.renew(mine)
    row = Host.objects.get(name=HERE)
    assert row.seen_at is not None
    assert row.steady_since is not None
    assert row.seen_at - row.steady_since < timedelta(seconds=1)


def test_the_systems_health_names_a_silent_host_with_what_depends_on_it(there: Stage) -> None:
    part = system._hosts()
    assert (part.state, part.sentence) == (PartState.OK, "Heartbeats from host-a, host-b.")
    sign(THERE, seconds_ago=16)
    part = system._hosts()
    assert part.state is PartState.PROBLEM
    assert "Host host-b has sent no heartbeat since" in part.sentence
    assert "1 driver and 1 query that should run are on it." in part.sentence
    assert [one.name for one in silent_hosts()[1]] == [THERE]

    Host.objects.update(seen_at=None)
    assert system._hosts().state is PartState.UNKNOWN  # the part "worker" says it
