"""Incidents open when something is wrong, say what, and close by themselves."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from listeners.models import Gap, SlowBatch
from queries.domain.alerts.forms import EntryKind, IncidentKind, IncidentState, NotificationStep
from queries.domain.alerts.incidents import QUIET_BEFORE_CLOSING
from queries.domain.alerts.routing import Telling
from queries.domain.errors import Conflict, Invalid
from queries.domain.protocol import RunError
from queries.domain.states import LossKind, StopMode
from queries.domain.system import OF_DATA, Part, SystemHealth, ok, problem
from queries.models.alerts import AlertRule, Channel, Incident, Maintenance
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Checkpoint, Query
from queries.models.deploys import Deploy, DeployChange
from queries.models.drivers import Host
from queries.models.history import Failure, FailureGroup
from queries.selectors.alerts.incidents import explain_incident
from queries.selectors.alerts.troubles import troubles
from queries.selectors.failures import full_disks
from queries.selectors.hosts import Disk, home_disk
from queries.services.alerts import incidents as service
from queries.services.alerts.deliveries import message_of
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, NO_SUCH_SOURCE, Stage
from tests.web.batches import batches

pytestmark = pytest.mark.django_db

KAFKA = {
    "name": "flights",
    "format": "kafka",
    "options": {"kafka.bootstrap.servers": "kafka-1:9092", "subscribe": "flights"},
}


class Alerts(Stage):
    """A stage whose incidents are watched."""

    def __init__(self) -> None:
        super().__init__(obliging=True)
        self.parts: tuple[Part, ...] = (ok("disk", "100 MB are free."),)

    def watch(self, seconds: float = 0) -> list[Incident]:
        """Let time pass without supervision, look, and return the open incidents."""
        self.now += timedelta(seconds=seconds)
        service.watch_incidents(now=self.now)
        return list(Incident.objects.filter(state=IncidentState.OPEN))

    def one(self) -> Incident:
        """Look, and return the only open incident."""
        (incident,) = self.watch()
        return incident

    def set(self, name: str, **columns: Any) -> Query:
        """Write a query's row, as the tasks that judge it do."""
        Query.objects.filter(name=name).update(**columns)
        return self.row(name)


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> Alerts:
    """A stage whose system is as healthy as the story says."""
    stage = Alerts()
    monkeypatch.setattr(service, "system_health", lambda now: SystemHealth(now, tuple(stage.parts)))
    return stage


def story(incident: Incident) -> list[str]:
    return list(incident.entries.values_list("kind", flat=True))


def test_a_healthy_query_and_one_that_somebody_stopped_are_no_incidents(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.query("idle")
    assert alerts.watch(60) == []
    alerts.set("delays", verdict="STALLED", verdict_since=alerts.now)
    alerts.stop("delays")
    assert alerts.watch(60) == []


def test_a_query_that_fails_for_good_is_an_incident_until_it_runs_again(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.fail("delays", NO_SUCH_SOURCE)
    assert alerts.phase("delays") == "FAILED"
    incident = alerts.one()
    assert (incident.kind, incident.severity) == (IncidentKind.FAILED, "critical")
    assert incident.title == "delays: failed"
    assert "Failed to find the data source" in incident.detail
    assert incident.failure_group is not None
    assert incident.failure_group.title in incident.detail
    assert incident.announce_after == alerts.now
    alerts.up("delays")
    alerts.watch(10)
    assert alerts.watch(QUIET_BEFORE_CLOSING.total_seconds()) == []
    incident.refresh_from_db()
    assert (incident.state, incident.closed_by) == (IncidentState.CLOSED, "")
    assert incident.announce_after == alerts.now
    assert story(incident) == [EntryKind.OPENED, EntryKind.QUIET, EntryKind.CLOSED]


def test_a_batch_that_fails_again_and_again_is_held_and_told_once(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    for _ in range(3):
        alerts.fail("delays", DIVIDE, batch=4)
        if alerts.phase("delays") == "ON_HOLD":
            break
        alerts.pause("delays")
        alerts.ready("delays")
    assert alerts.phase("delays") == "ON_HOLD"
    assert [one.kind for one in alerts.watch()] == [IncidentKind.ON_HOLD]


def test_failures_in_a_row_are_one_incident_however_many_follow(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    for _ in range(7):
        alerts.fail("delays", BROKEN_PIPE)
        alerts.pause("delays")
        alerts.look()
    incident = alerts.one()
    assert incident.kind == IncidentKind.CRASH_LOOP
    assert incident.occurrence == 1
    assert Incident.objects.count() == 1


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        ("STALLED", IncidentKind.STALLED),
        ("QUERY_MISSING", IncidentKind.QUERY_MISSING),
        ("NO_TELEMETRY", IncidentKind.NO_TELEMETRY),
    ],
)
def test_a_bad_verdict_is_an_incident(alerts: Alerts, verdict: str, kind: IncidentKind) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.set("delays", verdict=verdict, verdict_since=alerts.now)
    assert alerts.one().kind == kind


def test_a_query_that_lags_is_one_only_after_a_while(alerts: Alerts, settings: Any) -> None:
    settings.ALERT_LAGGING_MINUTES = 10
    alerts.query("delays")
    alerts.up("delays")
    alerts.set("delays", verdict="LAGGING", verdict_since=alerts.now)
    assert alerts.watch(9 * 60) == []
    assert [one.kind for one in alerts.watch(60)] == [IncidentKind.LAGGING]


def _slow(alerts: Alerts, batch: int, took_ms: int, *, ended: timedelta) -> None:
    """Write a batch of delays that ended that long ago, with its driver's evidence."""
    run, at = alerts.run("delays"), alerts.now - ended
    batches(run, 1, first=batch, until=at, duration_ms=took_ms)
    SlowBatch.objects.create(
        driver=run.driver_id,
        seq=batch,
        query=run.query_id,
        run=run.pk,
        batch=batch,
        took_ms=took_ms,
        at=at,
        body={"stages": []},
    )


def test_a_stalled_query_says_why_its_slowest_batch_was_slow(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    for batch, took in enumerate((60_000, 9_000, 4_000)):
        _slow(alerts, batch, took, ended=timedelta())
    alerts.set("delays", verdict="STALLED", verdict_since=alerts.now)
    text = "Batch 1 took 9.0 s: the driver took 8.9 s outside Spark's tasks."  # 0 starts the run
    assert text in alerts.one().detail


@pytest.mark.guarantee("G-AGE-1")
def test_a_batch_from_before_a_query_was_slow_is_not_blamed(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.watch(30 * 60)
    _slow(alerts, 0, 70_000, ended=timedelta(minutes=21))
    _slow(alerts, 1, 60_000, ended=timedelta(minutes=20))
    alerts.set("delays", verdict="LAGGING", verdict_since=alerts.now - timedelta(minutes=15))
    assert alerts.one().detail == "Lagging since 03:15:00 UTC."
    _slow(alerts, 69, 5_000, ended=timedelta(minutes=1))
    assert "Batch 69 took 5.0 s" in alerts.one().detail


def test_records_about_to_be_deleted_are_an_incident(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    later = alerts.now + timedelta(hours=1)
    text = "1,200 records of flights will be deleted at 04:00 UTC."
    alerts.set("delays", risk=text, risk_at=later)
    incident = alerts.one()
    assert incident.kind == IncidentKind.AT_RISK
    assert incident.title == "delays: unread records are about to be deleted"
    assert incident.detail.startswith("1,200 records")


def test_what_is_gone_and_what_was_recreated_is_not_about_to_be_deleted(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.set("delays", risk="Has lost data.", risk_at=alerts.now)
    assert alerts.one().title == "delays: unread records were deleted"
    query = alerts.row("delays")
    SourceLag.objects.create(
        query=query, source="flights", partition=0, replaced=True, seen_at=alerts.now
    )
    [incident] = alerts.watch()
    assert incident.title == "delays: a topic was deleted and recreated"
    SourceLag.objects.all().delete()
    ids = {"": {"flights": {"id": "one", "now": "two"}}}
    Checkpoint.objects.filter(query=query).update(topic_ids=ids)
    [incident] = alerts.watch()
    assert incident.title == "delays: a topic was deleted and recreated"


def test_records_that_were_lost_or_late_are_incidents_for_a_while(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    query = alerts.row("delays")
    Loss.objects.create(
        query=query, kind=LossKind.RETENTION, source="flights", records=40, noticed_at=alerts.now
    )
    Loss.objects.create(
        query=query, kind=LossKind.LATE, source="", records=3, noticed_at=alerts.now
    )
    Gap.objects.create(
        kind="batch",
        driver=1,
        query=query.pk,
        first=3,
        last=5,
        missing=3,
        repaired=1,
        noticed_at=alerts.now,
        closed_at=alerts.now,
        beyond_repair=True,
    )
    found = {one.kind: one.detail for one in alerts.watch(1)}
    assert found.keys() == {
        IncidentKind.RECORDS_LOST,
        IncidentKind.LATE_RECORDS,
        IncidentKind.EVENTS_DROPPED,
    }
    assert found[IncidentKind.RECORDS_LOST].startswith("40 records")
    assert found[IncidentKind.EVENTS_DROPPED].startswith("The reports of 2 batches")
    alerts.watch(700)
    assert alerts.watch(QUIET_BEFORE_CLOSING.total_seconds()) == []


def test_a_broker_that_dies_under_200_queries_is_one_incident(alerts: Alerts) -> None:
    for application in range(4):
        alerts.application(f"app-{application}")
        for number in range(50):
            name = f"q{application}-{number:02}"
            alerts.query(name, f"app-{application}", sources=[KAFKA])
    Query.objects.update(
        desired="RUNNING", phase="RUNNING", source_unreachable_since=alerts.now, verdict="STALLED"
    )
    for query in Query.objects.all():
        query.target_revision = query.revisions.get()
        query.save()
    incident = next(iter(alerts.watch(15)))
    assert Incident.objects.count() == 1
    assert incident.kind == IncidentKind.SOURCE_UNREACHABLE
    assert incident.title == "Source kafka-1:9092 unreachable: 200 queries"
    assert incident.affected_count == 200
    assert len(incident.affected) == 20
    Query.objects.update(source_unreachable_since=None, verdict="PROGRESSING")
    alerts.watch(10)
    assert alerts.watch(QUIET_BEFORE_CLOSING.total_seconds()) == []
    assert Incident.objects.count() == 1


def test_a_driver_that_dies_again_and_again_is_one_incident_of_its_application(
    alerts: Alerts,
) -> None:
    alerts.application("flights")
    for name in ("delays", "hours", "rows"):
        alerts.query(name, "flights")
        alerts.start(name)
    alerts.ready("flights")
    for _ in range(3):
        alerts.launcher.die("flights")
        alerts.look()
        alerts.wait(400)
        alerts.look()
    (incident,) = alerts.watch()
    assert incident.kind == IncidentKind.DRIVER_DEATHS
    assert incident.affected == ["delays", "hours", "rows"]


def test_a_stop_that_hangs_is_an_incident(alerts: Alerts) -> None:
    alerts.application("flights")
    for name in ("delays", "hours"):
        alerts.query(name, "flights")
        alerts.start(name)
    alerts.ready("flights")
    alerts.launcher.obliging = False
    alerts.stop("delays", StopMode.NOW)
    alerts.launcher.hang_stop(alerts.run("delays").pk)
    alerts.look()
    incident = alerts.one()
    assert incident.kind == IncidentKind.STUCK_STOP
    assert incident.affected == ["delays"]


def test_a_silent_host_is_one_incident(alerts: Alerts, settings: Any) -> None:
    alerts.query("delays")
    alerts.up("delays")
    Host.objects.create(name="other", seen_at=None)
    Query.objects.filter(name="delays").update(phase="UNREACHABLE")
    row = alerts.row("delays").application
    row.host = "other"
    row.save()
    alerts.driver("delays")
    Host.objects.create(name=settings.HEADGATE_HOST, seen_at=Now())
    found = {one.kind for one in alerts.watch()}
    assert found == {IncidentKind.HOST_SILENT}


def test_headgates_own_trouble_is_an_incident(alerts: Alerts) -> None:
    alerts.parts = (problem("disk", "12 MB are free where the data is stored."),)
    incident = alerts.one()
    assert (incident.kind, incident.title) == (IncidentKind.DISK, "Headgate: disk full")
    assert incident.detail.startswith("12 MB")


@pytest.mark.parametrize(
    ("part", "kind"), [("ingester", IncidentKind.INGESTER_DOWN), ("data", IncidentKind.DATA_OLD)]
)
def test_a_part_that_no_longer_works_is_an_incident(
    alerts: Alerts, part: str, kind: IncidentKind
) -> None:
    alerts.parts = (problem(part, "Nothing since 03:00:00 UTC.", alerts.now),)
    alerts.watch()
    assert [one.kind for one in alerts.watch(600)] == [kind]


@pytest.mark.parametrize("part", ["worker", "ticks"])
def test_what_only_the_watcher_can_tell_is_told_by_it_alone(alerts: Alerts, part: str) -> None:
    alerts.parts = (problem(part, "No heartbeat since 03:00:00 UTC.", alerts.now),)
    assert alerts.watch() == []


def test_a_channel_that_delivers_nothing_is_an_incident(alerts: Alerts) -> None:
    Channel.objects.create(
        name="pager",
        kind="webhook",
        created_at=alerts.now,
        created_by="ada",
        failing_since=alerts.now - timedelta(minutes=11),
        last_error="It does not answer.",
    )
    incident = alerts.one()
    assert incident.kind == IncidentKind.CHANNEL_DEAD
    assert incident.title == "Channel pager delivers nothing"


def test_a_rule_without_an_enabled_channel_is_an_incident(alerts: Alerts) -> None:
    made = {"created_at": alerts.now, "created_by": "ada"}
    on, off = (
        Channel.objects.create(name=name, kind="webhook", enabled=name == "on", **made)
        for name in ("on", "off")
    )
    rules = {
        name: AlertRule.objects.create(name=name, enabled=name != "disabled", **made)
        for name in ("heard", "mute", "disabled", "escalates")
    }
    rules["heard"].channels.set([on, off])
    rules["mute"].channels.set([off])
    rules["escalates"].channels.set([on])
    rules["escalates"].escalate_to.set([off])
    AlertRule.objects.filter(name="escalates").update(escalate_after_minutes=5)
    found = {one.title: one.kind for one in alerts.watch()}
    assert found == {
        "Rule mute has no enabled channel": IncidentKind.NO_CHANNEL,
        "Rule escalates has no enabled channel to escalate to": IncidentKind.NO_CHANNEL,
    }
    (sent, *_) = Incident.objects.all()
    assert explain_incident(sent).address == "/alerts/rules/"
    Channel.objects.update(enabled=True)
    assert alerts.watch(QUIET_BEFORE_CLOSING.total_seconds())
    assert alerts.watch(QUIET_BEFORE_CLOSING.total_seconds()) == []


def test_in_a_maintenance_window_nothing_that_it_names_opens(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.set("delays", labels={"team": "a"}, verdict="STALLED", verdict_since=alerts.now)
    Maintenance.objects.create(
        name="upgrade",
        selector={"labels": {"team": "a"}},
        starts_at=alerts.now,
        ends_at=alerts.now + timedelta(hours=1),
        created_at=alerts.now,
        created_by="ada",
    )
    assert alerts.watch(60) == []
    assert [one.kind for one in alerts.watch(3600)] == [IncidentKind.STALLED]


def test_a_window_that_cannot_be_read_hides_nothing_and_stops_nothing(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.set("delays", verdict="STALLED", verdict_since=alerts.now)
    times = {"starts_at": alerts.now, "ends_at": alerts.now + timedelta(hours=1)}
    about = {"created_at": alerts.now, "created_by": "ada"}
    Maintenance.objects.create(name="broken", selector={"no": "field"}, **times, **about)
    alerts.watch()
    assert [one.kind for one in alerts.watch(60)] == [IncidentKind.STALLED]


def test_what_flaps_is_one_incident_and_what_returns_within_a_day_is_opened_again(
    alerts: Alerts,
) -> None:
    alerts.query("delays")
    alerts.up("delays")
    for _ in range(5):
        alerts.set("delays", verdict="STALLED", verdict_since=alerts.now)
        alerts.watch(20)
        alerts.set("delays", verdict="IDLE")
        alerts.watch(20)
    assert Incident.objects.get().occurrence == 1
    assert alerts.watch(QUIET_BEFORE_CLOSING.total_seconds()) == []
    alerts.set("delays", verdict="STALLED", verdict_since=alerts.now)
    (incident,) = alerts.watch(3600)
    assert incident.occurrence == 2
    assert incident.opened_at > incident.first_opened_at
    assert story(incident)[-1] == EntryKind.REOPENED


def test_people_acknowledge_assign_note_snooze_and_close(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.set("delays", verdict="STALLED", verdict_since=alerts.now)
    incident = alerts.one()
    Incident.objects.update(announce_after=None)
    service.acknowledge(incident, actor="olga", now=alerts.now)
    service.assign(incident, to="ben", actor="olga", now=alerts.now)
    service.note(incident, text="The broker was upgraded.", actor="ben", now=alerts.now)
    service.snooze(incident, until=alerts.now + timedelta(hours=1), actor="olga", now=alerts.now)
    incident.refresh_from_db()
    assert (incident.acknowledged_by, incident.assignee) == ("olga", "ben")
    assert incident.announce_after == alerts.now
    service.close(incident, actor="olga", now=alerts.now)
    assert alerts.watch(10) == []  # its trouble lasts, and olga knows
    with pytest.raises(Conflict, match="already closed"):
        service.acknowledge(incident, actor="olga", now=alerts.now)
    assert [(one.kind, one.actor) for one in incident.entries.all()][1:] == [
        ("acknowledged", "olga"),
        ("assigned", "olga"),
        ("note", "ben"),
        ("snoozed", "olga"),
        ("closed", "olga"),
    ]


def test_a_time_that_has_passed_and_an_empty_note_are_refused(alerts: Alerts) -> None:
    alerts.parts = (problem("disk", "Full."),)
    incident = alerts.one()
    with pytest.raises(Invalid, match="not in the future"):
        service.snooze(incident, until=alerts.now, actor="olga", now=alerts.now)
    with pytest.raises(Invalid, match="empty"):
        service.note(incident, text="  ", actor="olga", now=alerts.now)


def test_one_rotten_incident_stops_no_other(
    alerts: Alerts, monkeypatch: pytest.MonkeyPatch
) -> None:
    alerts.parts = (problem("disk", "Full."), problem("ingester", "It is away."))
    real = service._open

    def rotten(trouble: Any, now: Any) -> int:
        if trouble.kind == IncidentKind.DISK:
            raise ValueError("rotten")
        return real(trouble, now)

    monkeypatch.setattr(service, "_open", rotten)
    assert [one.kind for one in alerts.watch()] == [IncidentKind.INGESTER_DOWN]


def test_a_second_look_at_the_same_moment_opens_no_second_incident(alerts: Alerts) -> None:
    alerts.parts = (problem("disk", "Full."),)
    alerts.watch()
    found = service._open
    trouble = next(iter(troubles(alerts.parts, now=alerts.now)))
    assert found(replace(trouble), alerts.now) == 0
    assert Incident.objects.count() == 1


def test_a_look_asks_the_database_as_often_at_100_queries_as_at_10(alerts: Alerts) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as seen:
            alerts.watch()
        return len(seen)

    for number in range(10):
        alerts.query(f"q{number}", "flights")
    Query.objects.update(desired="RUNNING", phase="FAILED")
    alerts.watch()
    few = asked()
    for number in range(10, 100):
        alerts.query(f"q{number}", "flights")
    Query.objects.update(desired="RUNNING", phase="FAILED")
    alerts.watch()
    assert asked() == few


def _stopped_at_risk(alerts: Alerts, hours: float) -> None:
    alerts.query("resting")
    gone = alerts.now + timedelta(hours=hours)
    alerts.set("resting", risk="120 records are deleted soon", risk_at=gone)


def _rule(**selector: Any) -> None:
    number = AlertRule.objects.count()
    rule = AlertRule.objects.create(name=f"rule {number}", selector=selector, created_at=Now())
    rule.channels.create(name=f"channel {number}", kind="webhook", created_at=Now())


def test_a_stopped_query_about_to_lose_records_is_a_warning(alerts: Alerts) -> None:
    _stopped_at_risk(alerts, hours=30)
    assert alerts.watch() == []
    (incident,) = alerts.watch(7 * 3600)
    assert (incident.kind, incident.severity) == (IncidentKind.AT_RISK_STOPPED, "warning")
    assert incident.detail == "120 records are deleted soon"


def test_a_rule_names_the_time_before_the_loss_and_may_leave_stopped_queries_out(
    alerts: Alerts,
) -> None:
    _stopped_at_risk(alerts, hours=30)
    _rule(stopped=False, stopped_within_hours=500)
    assert alerts.watch() == []
    _rule(stopped_within_hours=48)
    assert alerts.one().kind == IncidentKind.AT_RISK_STOPPED


def test_the_reasons_of_many_slow_queries_are_read_together(alerts: Alerts) -> None:
    def asked(*names: str) -> int:
        for seq, name in enumerate(names):
            alerts.query(name)
            alerts.up(name)
            run = alerts.run(name)
            batches(run, 2, until=alerts.now, duration_ms=9_000)
            SlowBatch.objects.create(
                driver=run.driver_id,
                **{"seq": seq, "query": run.query_id, "run": run.pk, "batch": 1},
                **{"took_ms": 9_000, "at": alerts.now, "body": {"stages": []}},
            )
            alerts.set(name, verdict="STALLED", verdict_since=alerts.now)
        with CaptureQueriesContext(connection) as done:
            found = troubles([], now=alerts.now)
        assert all("took 9.0 s" in one.detail for one in found)
        return len(done)

    first = asked("one")
    assert asked("two", "three", "four") == first


FULL = RunError("", "java.io.IOException", "No space left on device", "No space left on device")
LOST = RunError(
    "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE",
    "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
    "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost.",
    "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost.",
)


def _loop(alerts: Alerts, name: str, error: RunError) -> None:
    for _ in range(7):
        alerts.fail(name, error)
        alerts.pause(name)
        alerts.look()


def test_a_crash_loop_says_why_it_fails(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    _loop(alerts, "delays", BROKEN_PIPE)
    incident = alerts.one()
    assert incident.detail.startswith("ConnectException: Connection refused. 7 failures since ")
    assert incident.failure_group is not None


def test_a_failure_from_before_a_crash_loop_does_not_explain_it(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    _loop(alerts, "delays", BROKEN_PIPE)
    rows = Failure.objects.all()
    first = min(rows.values_list("at", flat=True))
    group = FailureGroup.objects.get()
    FailureGroup.objects.filter(pk=group.pk).update(status="RESOLVED")
    assert "Connection refused" not in alerts.one().detail
    old = FailureGroup.objects.create(
        **{"query": group.query, "application": group.application, "fingerprint": "old"},
        **{"title": "Old", "first_seen": first, "last_seen": first},
    )
    last = rows.latest("at")
    rows.create(
        **{"driver": last.driver, "run": last.run, "group": old, "category": "unknown"},
        at=first - timedelta(hours=1),
    )
    assert "Old" not in alerts.one().detail


def test_queries_on_a_full_disk_are_one_incident_with_path_and_missing_bytes(
    alerts: Alerts, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.DISK_WARNING_MB = 1000
    disk = Disk("/data/out", "/data", 7, size=50_000_000_000, free=3_000_000)
    monkeypatch.setattr(full_disks, "fullest", lambda paths: disk)
    for name in ("delays", "hours"):
        alerts.query(name)
        alerts.up(name)
    for name in ("delays", "hours"):
        _loop(alerts, name, FULL)
    failed_at = alerts.now
    Failure.objects.update(at=failed_at)
    alerts.parts = (problem(f"{OF_DATA}/data", disk.sentence),)
    host = alerts.row("delays").application.host
    settings.HEADGATE_HOST = host
    incident = alerts.one()
    assert (incident.kind, incident.affected_count) == (IncidentKind.DISK, 2)
    assert incident.title == f"Disk full: /data on {host}: 2 queries"
    then = f"No space left on device at {failed_at:%H:%M:%S} UTC. "
    assert f"{then}Now, /data/out is on the file system mounted at /data" in incident.detail
    assert "3 MB of 50,000 MB are free, 997 MB too little" in incident.detail


def test_a_full_file_system_of_a_data_root_is_an_incident(alerts: Alerts) -> None:
    alerts.parts = (problem(f"{OF_DATA}/data", "3 MB of 50 MB are free."),)
    incident = alerts.one()
    assert incident.kind == IncidentKind.DISK
    assert incident.title.startswith("Disk full: /data on ")


@pytest.mark.guarantee("G-LOSS-2")
def test_one_loss_is_one_incident_from_the_risk_to_the_ledger(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.set("delays", risk="150 offsets were deleted.", risk_at=alerts.now)
    risk = alerts.one()
    assert risk.kind == IncidentKind.AT_RISK
    Incident.objects.update(announce_after=None)
    alerts.fail("delays", LOST)
    assert [one.kind for one in alerts.watch()] == [IncidentKind.FAILED]
    failed = alerts.one()
    assert (failed.pk, failed.kind) == (risk.pk, IncidentKind.FAILED)
    assert failed.announce_after == alerts.now  # rules may select another channel for it
    assert failed.detail.endswith("150 offsets were deleted.")
    Loss.objects.create(
        query=alerts.row("delays"),
        source="flights",
        **{"kind": LossKind.SKIPPED, "records": 150, "noticed_at": alerts.now},
    )
    assert alerts.one().pk == risk.pk


def test_records_that_are_gone_are_no_risk_while_the_query_starts(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    gone = {"risk": "150 offsets were deleted.", "risk_at": alerts.now}
    alerts.set("delays", phase="STARTING", **gone)
    assert alerts.watch() == []
    alerts.set("delays", risk_at=alerts.now + timedelta(hours=1))
    assert [one.kind for one in alerts.watch()] == [IncidentKind.AT_RISK]


@pytest.mark.guarantee("G-ALERT-2")
@pytest.mark.parametrize(
    ("state", "paged"),
    [("RESTARTED", False), ("GOING_BACK", False), ("GOOD", True), ("KEPT", True)],
)
def test_what_a_deploy_judges_or_takes_back_pages_nobody(
    alerts: Alerts, state: str, paged: bool
) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.fail("delays", NO_SUCH_SOURCE)
    deploy = Deploy.objects.create(actor="ada", created_at=alerts.now)
    change = DeployChange.objects.create(
        deploy=deploy, wave=1, kind="Query", name="delays", query=alerts.row("delays"), state=state
    )
    assert bool(alerts.watch()) is paged
    change.over = True  # it could not take it back
    change.save()
    assert [one.kind for one in alerts.watch()] == [IncidentKind.FAILED]


def test_a_resolved_loss_says_who_accepted_it(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    alerts.set("delays", risk="150 offsets may be lost.", risk_at=alerts.now)
    incident = alerts.one()
    Loss.objects.create(
        **{"query": alerts.row("delays"), "source": "flights", "kind": LossKind.RETENTION},
        **{"offsets": 150, "noticed_at": alerts.now, "accepted_at": alerts.now},
        accepted_by="ada",
    )
    incident.closed_at = alerts.now + timedelta(minutes=5)
    message = message_of(incident, Telling(NotificationStep.RESOLVED, 1), alerts.now)
    assert "The loss of 150 offsets was accepted by ada." in message.text
    assert "may be lost" not in message.text


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("OSError: [Errno 28] No space left on device: '/data/out/part-1'", "/data/out/part-1"),
        ("java.nio.file.FileSystemException: /data/a: No space left on device", "/data/a"),
        ("/data/a (No space left on device)", "/data/a"),
        ("Disk quota exceeded: '/home/x'", "/home/x"),
    ],
)
def test_the_path_of_a_full_disk_is_read_from_the_failure(
    alerts: Alerts, monkeypatch: pytest.MonkeyPatch, text: str, path: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(full_disks, "fullest", lambda paths: asked.extend(paths))
    alerts.query("delays")
    alerts.up("delays")
    _loop(alerts, "delays", replace(FULL, root_cause=text))
    incident = alerts.one()
    assert (incident.kind, set(asked)) == (IncidentKind.DISK, {path})
    assert re.match(
        rf"No space left on device at [\d:]+ UTC: {re.escape(path)}\. ", incident.detail
    )
    assert incident.title == "delays: disk full"


def test_a_full_disk_of_another_host_is_not_looked_up_here(
    alerts: Alerts, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    alerts.query("delays")
    alerts.up("delays")
    _loop(alerts, "delays", FULL)
    monkeypatch.setattr(full_disks, "fullest", lambda paths: pytest.fail("looked up here"))
    settings.HEADGATE_HOST = "elsewhere"
    held = Checkpoint.objects.get(query__name="delays").location.removeprefix("file://")
    assert held in alerts.one().detail  # where it writes, if the failure does not say


def test_a_full_home_and_the_queries_that_fail_there_are_one_incident(alerts: Alerts) -> None:
    alerts.query("delays")
    alerts.up("delays")
    home = home_disk()
    assert home is not None
    _loop(alerts, "delays", replace(FULL, root_cause=f"{home.path}/x: {FULL.root_cause}"))
    alerts.parts = (problem("disk", "Only 12 MB are free where the data is stored."),)
    incident = alerts.one()
    assert incident.title.startswith(f"Disk full: {home.mount} on ")
    assert "Only 12 MB are free" in incident.detail
    assert "No space left on device" in incident.detail
