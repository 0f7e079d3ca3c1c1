"""Each message leaves once, and what could not leave is tried again for a day."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from queries.channels.base import SendFailed
from queries.domain.alerts.forms import DeliveryState, IncidentKind, IncidentState
from queries.models.alerts import AlertRule, Channel, Delivery, Incident
from queries.selectors.lineage import in_words
from queries.services.alerts import deliveries, incidents
from queries.services.alerts.deliveries import (
    LEASE,
    announce_incidents,
    forget_old,
    send_alerts,
    try_channel,
)
from tests.channels.receivers import Receiver, receiving
from tests.faults.system import REPOSITORY
from tests.scenarios.stage import Stage
from tests.services.secrets.binding import bind
from tests.web.test_lineage import flow

START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


class Outbox:
    """Incidents, channels to a real receiver, and the two tasks, on a clock of the story's own."""

    def __init__(self, receiver: Receiver, secrets: Path) -> None:
        self.receiver = receiver
        self.secrets = secrets
        self.now = START

    def secret(self, name: str, value: str) -> str:
        """Keep a secret; return its reference."""
        (self.secrets / name).write_text(f"{value}\n")
        (self.secrets / name).chmod(0o600)
        return f"file:{name}"

    def channel(self, name: str, url: str = "") -> Channel:
        for secret in ("url", "key"):
            bind(f"file:{name}-{secret}", name, "127.0.0.1", kind="channel")
        return Channel.objects.create(
            name=name,
            kind="webhook",
            settings={
                "url": self.secret(f"{name}-url", url or f"{self.receiver.url}&c={name}"),
                "secret": self.secret(f"{name}-key", "s3cret-of-ours"),
            },
            created_at=self.now,
            created_by="ada",
        )

    def rule(self, *channels: Channel, **columns: Any) -> AlertRule:
        row = AlertRule.objects.create(
            name=f"rule {AlertRule.objects.count()}",
            created_at=self.now,
            created_by="ada",
            **columns,
        )
        row.channels.set(channels)
        return row

    def incident(self, **columns: Any) -> Incident:
        known: dict[str, Any] = {
            "kind": IncidentKind.FAILED,
            "fingerprint": "failed:query:1",
            "severity": "critical",
            "title": "delays: failed",
            "detail": "[DIVIDE_BY_ZERO] Division by zero.",
            "opened_at": self.now,
            "first_opened_at": self.now,
            "seen_at": self.now,
            "announce_after": self.now,
            **columns,
        }
        return Incident.objects.create(**known)

    def end(self, incident: Incident) -> None:
        Incident.objects.filter(pk=incident.pk).update(
            state=IncidentState.CLOSED, closed_at=self.now, announce_after=self.now
        )

    def go(self, seconds: float = 0) -> list[tuple[str, str]]:
        """Let time pass, do both tasks, and return what the receiver got since: (channel, step)."""
        self.now += timedelta(seconds=seconds)
        before = len(self.receiver.got)
        announce_incidents(now=self.now)
        send_alerts(now=self.now, clock=lambda: self.now)
        return sorted(
            (got.path.rpartition("c=")[2], str(got.form["step"]))
            for got in self.receiver.got[before:]
        )


@pytest.fixture
def outbox(tmp_path: Path, settings: Any) -> Iterator[Outbox]:
    """An outbox to a receiver on this machine."""
    settings.SECRETS_DIR = tmp_path
    settings.ALERT_NETWORKS = ["127.0.0.0/8"]
    settings.PUBLIC_URL = "https://headgate.example"
    with receiving() as receiver:
        yield Outbox(receiver, tmp_path)


def states() -> list[str]:
    return list(Delivery.objects.order_by("pk").values_list("state", flat=True))


@pytest.mark.django_db
def test_an_incident_is_told_once_to_each_channel_and_so_is_its_end(outbox: Outbox) -> None:
    outbox.rule(outbox.channel("one"), outbox.channel("two"))
    incident = outbox.incident()
    assert outbox.go() == [("one", "opened"), ("two", "opened")]
    assert outbox.go(60) == []
    outbox.end(incident)
    assert outbox.go(60) == [("one", "resolved"), ("two", "resolved")]
    assert outbox.go(60) == []
    opened, resolved = outbox.receiver.got[0].form, outbox.receiver.got[-1].form
    assert opened["key"] == resolved["key"] == f"headgate/{incident.uuid}/1"
    assert opened["url"] == f"https://headgate.example/alerts/{incident.uuid}/"
    assert not opened["repeat"]


@pytest.mark.django_db
def test_a_message_names_what_is_downstream(outbox: Outbox, stage: Stage) -> None:
    flow(stage)
    outbox.channel("one")
    outbox.incident(query=stage.row("raw"), application=stage.row("raw").application)
    outbox.incident(fingerprint="b", affected=["late", "daily"], affected_count=2)
    outbox.incident(fingerprint="c", application=stage.row("late").application)
    outbox.incident(fingerprint="d")
    outbox.go()
    facts = [
        {fact["name"]: fact["value"] for fact in got.form["facts"]} for got in outbox.receiver.got
    ]
    told = [one.get("Downstream", "") for one in facts]
    assert sorted(told) == ["", "", "daily (1 query)", "late, daily (2 queries)"]


@pytest.mark.django_db
def test_a_message_says_that_the_list_of_what_is_downstream_may_be_incomplete(
    outbox: Outbox, stage: Stage
) -> None:
    flow(stage)
    unread = {"relations": [], "unknown": ["Spark's parser rejects it"]}
    stage.row("apart").revisions.update(reads=unread)
    outbox.channel("one")
    outbox.incident(query=stage.row("raw"), application=stage.row("raw").application)
    outbox.incident(fingerprint="b", query=stage.row("daily"))
    outbox.go()
    told = {
        fact["value"]
        for got in outbox.receiver.got
        for fact in got.form["facts"]
        if fact["name"] == "Downstream"
    }
    why = "the list may be incomplete, because not all reads and writes are known of apart"
    assert told == {
        f"late, daily (2 queries); {why} (1 query)",
        f"none known; {why} (1 query)",
    }


def test_a_long_list_of_names_is_cut() -> None:
    names = [f"q{at}" for at in range(1200)]
    assert in_words(names) == "q0, q1, q2, q3, q4 and 1,195 more (1,200 queries)"


@pytest.mark.django_db
def test_a_lineage_that_cannot_be_read_keeps_no_message_back(
    outbox: Outbox, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ValueError("no lineage")

    monkeypatch.setattr("queries.selectors.lineage.lineage", broken)
    stage.query("raw")
    outbox.channel("one")
    outbox.incident(query=stage.row("raw"))
    assert outbox.go() == [("one", "opened")]


@pytest.mark.django_db
def test_without_a_rule_every_channel_hears_of_it(outbox: Outbox) -> None:
    outbox.channel("one")
    Channel.objects.filter(pk=outbox.channel("off").pk).update(enabled=False)
    outbox.incident()
    assert outbox.go() == [("one", "opened")]


@pytest.mark.django_db
def test_a_second_occurrence_is_told_again_under_another_key(outbox: Outbox) -> None:
    outbox.rule(outbox.channel("one"))
    incident = outbox.incident()
    outbox.go()
    Incident.objects.filter(pk=incident.pk).update(occurrence=2, announce_after=outbox.now)
    assert outbox.go(60) == [("one", "opened")]
    assert outbox.receiver.got[-1].form["key"].endswith("/2")


@pytest.mark.django_db
def test_it_is_escalated_and_reminded_until_somebody_takes_it(outbox: Outbox) -> None:
    one, boss = outbox.channel("one"), outbox.channel("boss")
    rule = outbox.rule(one, escalate_after_minutes=15, remind_every_hours=1)
    rule.escalate_to.set([boss])
    incident = outbox.incident()
    assert outbox.go() == [("one", "opened")]
    assert outbox.go(14 * 60) == []
    assert outbox.go(60) == [("boss", "escalated")]
    assert outbox.go(45 * 60) == [("boss", "reminder"), ("one", "reminder")]
    incidents.acknowledge(incident, actor="olga", now=outbox.now)
    assert outbox.go(3 * 3600) == []
    outbox.end(incident)
    assert outbox.go() == [("boss", "resolved"), ("one", "resolved")]


@pytest.mark.django_db
def test_what_was_over_before_it_could_be_sent_is_not_told_at_all(outbox: Outbox) -> None:
    outbox.rule(outbox.channel("one"))
    incident = outbox.incident()
    announce_incidents(now=outbox.now)
    outbox.end(incident)
    assert outbox.go() == []
    assert states() == [DeliveryState.SKIPPED]


@pytest.mark.django_db
def test_a_receiver_that_is_away_is_tried_for_a_day_and_its_channel_says_so(
    outbox: Outbox,
) -> None:
    channel = outbox.channel("one")
    outbox.rule(channel)
    outbox.receiver.status = 503
    outbox.incident()
    assert outbox.go() == [("one", "opened")]
    channel.refresh_from_db()
    assert channel.failing_since == outbox.now
    assert channel.last_error == "It responded with 503 Service Unavailable"
    assert outbox.go(10) == []  # it waits longer each time
    assert outbox.go(60) == [("one", "opened")]
    outbox.receiver.status = 200
    assert outbox.go(3600) == [("one", "opened")]
    well = Channel.objects.get(pk=channel.pk)
    assert (well.failing_since, well.last_error) == (None, "")
    assert states() == [DeliveryState.SENT]
    assert not outbox.receiver.got[-1].form["repeat"]


@pytest.mark.django_db
def test_it_is_given_up_after_a_day(outbox: Outbox) -> None:
    outbox.rule(outbox.channel("one"))
    outbox.receiver.status = 503
    outbox.incident()
    for _ in range(60):
        outbox.go(1800)
    assert states() == [DeliveryState.GIVEN_UP]
    assert len(outbox.receiver.got) > 40


@pytest.mark.django_db
def test_what_no_attempt_can_deliver_is_given_up_at_once(outbox: Outbox) -> None:
    outbox.rule(outbox.channel("one"))
    outbox.receiver.status = 403
    outbox.incident()
    outbox.go()
    assert states() == [DeliveryState.GIVEN_UP]


@pytest.mark.django_db
def test_a_missing_secret_is_named_and_the_message_waits(outbox: Outbox) -> None:
    outbox.rule(outbox.channel("one"))
    (outbox.secrets / "one-key").unlink()
    outbox.incident()
    assert outbox.go() == []
    assert "one-key" in Delivery.objects.get().last_error
    outbox.secret("one-key", "new-secret")
    assert outbox.go(60) == [("one", "opened")]


@pytest.mark.django_db
def test_no_row_holds_an_address_or_a_secret(outbox: Outbox) -> None:
    outbox.rule(outbox.channel("one"), outbox.channel("gone", "https://10.0.0.7/t0ken"))
    outbox.incident()
    outbox.go()
    rows = [*Delivery.objects.values(), *Channel.objects.values(), *Incident.objects.values()]
    assert len(rows) == 5
    for word in ("s3cret-of-ours", "127.0.0.1", "t0ken", "10.0.0.7"):
        assert word not in str(rows)


@pytest.mark.django_db(transaction=True)
def test_a_slow_channel_does_not_hold_up_the_others(outbox: Outbox) -> None:
    with receiving() as slow:
        slow.hold.clear()
        outbox.rule(outbox.channel("slow", f"{slow.url}&c=slow"), outbox.channel("one"))
        for number in range(3):
            outbox.incident(fingerprint=f"f{number}")
        announce_incidents(now=outbox.now)

        def let_go() -> None:
            while len(outbox.receiver.got) < 3:
                threading.Event().wait(0.02)
            slow.hold.set()

        helper = threading.Thread(target=let_go)
        helper.start()  # the slow one answers once the other has all of its messages
        assert send_alerts(now=outbox.now, clock=lambda: outbox.now) == 6
        helper.join()
        assert len(slow.got) == 3


@pytest.mark.django_db
def test_a_test_message_goes_to_its_channel_alone(outbox: Outbox) -> None:
    outbox.channel("other")
    delivery = try_channel(outbox.channel("one"), actor="ada", now=outbox.now)
    assert outbox.go() == [("one", "opened")]
    delivery.refresh_from_db()
    assert delivery.state == DeliveryState.SENT
    assert "ada is testing the channel one" in outbox.receiver.got[0].form["text"]


@pytest.mark.django_db
def test_one_rotten_incident_stops_no_other(outbox: Outbox) -> None:
    outbox.rule(outbox.channel("one"))
    outbox.incident(kind="of another release", fingerprint="x")
    outbox.incident()
    assert outbox.go() == [("one", "opened")]


@pytest.mark.django_db
@pytest.mark.parametrize("message", [{"text": 7}, [], "text", {"facts": 1, "at": "soon"}])
def test_a_message_that_cannot_be_read_keeps_no_other_waiting_and_is_named(
    outbox: Outbox, message: Any
) -> None:
    channels = [outbox.channel(name) for name in ("a", "b", "c")]
    rotten = [try_channel(channel, actor="ada", now=outbox.now) for channel in channels][1]
    Delivery.objects.filter(pk=rotten.pk).update(message=message)
    assert outbox.go() == [("a", "opened"), ("c", "opened")]
    rotten.refresh_from_db()
    assert (rotten.state, bool(rotten.last_error)) == (DeliveryState.WAITING, True)
    assert rotten.channel.last_error


@pytest.mark.django_db
def test_what_is_older_than_the_history_goes(outbox: Outbox, settings: Any) -> None:
    outbox.rule(outbox.channel("one"))
    incident = outbox.incident()
    outbox.go()
    outbox.end(incident)
    outbox.go()
    lasting = outbox.incident(fingerprint="lasts")
    later = outbox.now + timedelta(days=settings.HISTORY_RETENTION_DAYS + 1)
    forget_old(now=later)
    assert list(Incident.objects.all()) == [lasting]
    assert not Delivery.objects.filter(incident=incident).exists()


@pytest.mark.faults
@pytest.mark.django_db(transaction=True)
def test_a_worker_killed_between_send_and_record_sends_once_more_and_says_so(
    outbox: Outbox, tmp_path: Path
) -> None:
    from django.db import connection

    if connection.vendor != "sqlite":
        pytest.skip("the process under test opens the file of SQLite")
    outbox.rule(outbox.channel("one"))
    outbox.now = datetime.now(UTC)
    outbox.incident()
    announce_incidents(now=outbox.now)
    code = (
        "import django; django.setup()\n"
        "from django.utils import timezone\n"
        "from queries.services.alerts.deliveries import send_alerts\n"
        "send_alerts(now=timezone.now(), clock=timezone.now)\n"
    )
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        "DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
        "HEADGATE_HOME": str(tmp_path),
        "HEADGATE_SECRETS": str(outbox.secrets),
        "HEADGATE_ALERT_NETWORKS": "127.0.0.0/8",
        "HEADGATE_FAIL_POINT": "after_alert",
    }
    killed = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env=environment, timeout=120, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    outbox.now = datetime.now(UTC)  # its lease began by its own clock, after it had started
    assert len(outbox.receiver.got) == 1
    assert states() == [DeliveryState.WAITING]
    assert outbox.go(1) == []  # its lease holds: the worker may be at it still
    assert outbox.go(LEASE.total_seconds()) == [("one", "opened")]
    assert [got.form["repeat"] for got in outbox.receiver.got] == [False, True]
    assert {got.form["key"] for got in outbox.receiver.got} == {outbox.receiver.got[0].form["key"]}
    assert outbox.go(3600) == []


@pytest.mark.django_db
def test_a_clock_that_was_set_back_keeps_no_message_for_ever(outbox: Outbox) -> None:
    outbox.channel("one")
    outbox.incident()
    announce_incidents(now=outbox.now)
    Delivery.objects.update(leased_until=outbox.now + timedelta(days=400))
    assert outbox.go() == [("one", "opened")]


@pytest.mark.django_db
def test_a_worker_that_wakes_late_does_not_undo_what_its_successor_delivered(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox.channel("one")
    outbox.incident()
    send = deliveries.send

    def freeze(*_: Any, **__: Any) -> None:
        """Let another worker take the message over and deliver it, then fail."""
        monkeypatch.setattr(deliveries, "send", send)
        Delivery.objects.update(leased_until=None)
        assert outbox.go() == [("one", "opened")]
        raise SendFailed("the connection was reset")

    monkeypatch.setattr(deliveries, "send", freeze)
    monkeypatch.setattr(deliveries, "ThreadPoolExecutor", InThisThread)
    outbox.go()
    assert states() == [DeliveryState.SENT]
    assert outbox.go(3600) == []


class InThisThread(ThreadPoolExecutor):
    """Runs at once what is submitted: a thread would not see the test's transaction."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done
