"""An installation with 50 running queries, and what feeds it their batches twice a second."""

import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import redis

QUERIES = 50
APPLICATIONS = 10
EVERY_S = 0.5  # of each query
USERS = 50
HOST = "elsewhere"
SPEC: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate", "options": {"rowsPerSecond": "1000"}}],
    "sql": "SELECT * FROM ticks",
    "sink": {"format": "noop"},
    "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
}
_BODY: dict[str, Any] = {
    "numInputRows": 1_000,
    "processedRowsPerSecond": 5_185.9,
    "batchDuration": 400,
    "durationMs": {"addBatch": 350, "walCommit": 20, "commitOffsets": 20, "triggerExecution": 400},
    "eventTime": {},
    "stateOperators": [],
    "sources": [{"description": "FileStreamSource[file:/data/flights]", "numInputRows": 1_000}],
    "sink": {"description": "file"},
}


def figure(batch: int) -> int:
    """Return the rows per second that pages show for a batch: it tells batches apart."""
    return 100 + batch % 900


def fill() -> list[int]:
    """Write the queries' rows; return the queries' IDs."""
    from queries.domain.states import Desired, DriverState, Phase, RunOutcome, Verdict
    from queries.models.applications import Application, ApplicationRevision
    from queries.models.definitions import Checkpoint, Query, QueryRevision
    from queries.models.drivers import Driver, Host, Run

    now = datetime.now(UTC)
    Host.objects.create(name=HOST, seen_at=now + timedelta(days=1))  # that host never falls silent
    drivers = []
    for number in range(APPLICATIONS):
        home = Application.objects.create(name=f"fed-{number}", host=HOST, created_at=now)
        revision = ApplicationRevision.objects.create(
            application=home, number=1, spec={}, created_at=now
        )
        driver = Driver.objects.create(
            application=home,
            application_revision=revision,
            epoch=100_000 + number,
            host=HOST,
            directory=f"/d/{number}",
            state=DriverState.LIVE,
            state_since=now,
            created_at=now,
        )
        drivers.append(driver)
    made = []
    for number in range(QUERIES):
        driver = drivers[number % APPLICATIONS]
        query = Query.objects.create(
            name=f"fed-{number:02}",
            application=driver.application,
            created_at=now,
            phase_since=now,
            desired=Desired.RUNNING,
            phase=Phase.RUNNING,
            verdict=Verdict.PROGRESSING,
        )
        Run.objects.create(
            query=query,
            driver=driver,
            revision=QueryRevision.objects.create(
                query=query, number=1, kind="sql", spec=SPEC, created_at=now
            ),
            checkpoint=Checkpoint.objects.create(
                query=query, location=f"file:///c/{query.name}", created_at=now
            ),
            epoch=100_000 + number,
            generation=1,
            cause="ASKED_START",
            outcome=RunOutcome.OPEN,
            spark_run_id=f"of-{number}",
            created_at=now - timedelta(hours=1),
            proven_at=now,
            first_commit_at=now,
        )
        made.append(query.pk)
    return made


def sessions() -> list[str]:
    """Create viewers; return the key of a session of each."""
    from django.contrib.auth.models import Group, User
    from django.test import Client

    viewers, keys = Group.objects.get(name="viewer"), []
    for number in range(USERS):
        user = User.objects.create_user(f"viewer-{number}")
        user.groups.add(viewers)
        client = Client()
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
        keys.append(str(client.session.session_key))
    return keys


def feed() -> None:
    """Send the events of all queries' batches until ended; print "query batch time" of each."""
    import django

    django.setup()
    from django.conf import settings

    from controlplane.hosts import event_key
    from headgate_ground.wire import (
        FIELD,
        EventKind,
        HeartbeatBody,
        QueueCounters,
        WireEvent,
        sealed,
    )
    from queries.models.drivers import Run

    runs = list(Run.objects.filter(query__name__startswith="fed-").order_by("pk"))
    epochs = dict(Run.objects.filter(driver__host=HOST).values_list("driver_id", "driver__epoch"))
    keys = {driver: event_key(driver, epoch) for driver, epoch in epochs.items()}
    seqs = dict.fromkeys(keys, 0)
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=30)

    def send(driver: int, kind: EventKind, body: dict[str, Any], **more: Any) -> None:
        seqs[driver] += 1
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        event = WireEvent(driver, epochs[driver], seqs[driver], at, kind, body=body, **more)
        client.xadd(settings.EVENT_STREAM, {FIELD: sealed(event.encode(), keys[driver])})

    began, sent = time.monotonic(), 0
    while os.getppid() != 1:
        batch, number = divmod(sent, len(runs))
        time.sleep(max(0.0, began + sent * EVERY_S / len(runs) - time.monotonic()))
        run = runs[number]
        body = {
            **_BODY,
            "batchId": batch,
            "runId": run.spark_run_id,
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "inputRowsPerSecond": float(figure(batch)),
        }
        send(
            run.driver_id,
            EventKind.PROGRESS,
            body,
            query=run.query_id,
            run=run.pk,
            spark_run_id=run.spark_run_id,
            batch=batch,
        )
        sys.stdout.write(json.dumps([run.query_id, figure(batch), time.time()]) + "\n")
        sys.stdout.flush()
        if not number and not batch % 10:  # each driver's heartbeat, every 5 s
            queue = QueueCounters(0, 0, 10_000, 1.0)
            for driver in keys:
                beat = HeartbeatBody("private", queue, queue, (), seqs[driver], 0, 0, 0, 0)
                send(driver, EventKind.HEARTBEAT, beat.body())
        sent += 1


if __name__ == "__main__":
    feed()
