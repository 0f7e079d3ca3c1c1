"""Nobody speaks for a query but the driver that runs it, whoever reaches Redis or a spool."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane import hosts
from headgate_ground import spool
from headgate_ground.wire import FIELD, WireEvent, sealed
from listeners.models import DeadLetter, Heartbeat, Latest, Progress
from listeners.senders import Senders, believed_only
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.models.drivers import Run
from tests.conftest_redis import (
    MakeIngester,
    make_ingester,
    nudged,
    redis_client,
    valkey,
)
from tests.listeners.events import STREAM, heartbeat, progress
from tests.security.drivers.two_drivers import batch_of, key_of, ours, played, stage, theirs

__all__ = [
    "make_ingester",
    "nudged",
    "ours",
    "played",
    "redis_client",
    "stage",
    "theirs",
    "valkey",
]
pytestmark = [pytest.mark.redis, pytest.mark.django_db]

Say = Callable[..., None]


@pytest.fixture
def say(redis_client: Any, make_ingester: MakeIngester) -> Say:
    """Put an entry into the stream and let the ingester work."""

    def say(event: WireEvent, key: bytes) -> None:
        redis_client.xadd(STREAM, {FIELD: sealed(event.encode(), key)})
        ingester = make_ingester(known=hosts)
        ingester.step()  # makes its group
        while ingester.step():
            pass

    return say


def _refusal() -> str:
    assert not Progress.objects.exists()
    assert not Latest.objects.exists()
    assert not Heartbeat.objects.exists()
    return str(DeadLetter.objects.get().reason)


def test_what_a_driver_says_of_its_own_run_is_stored(ours: Run, say: Say) -> None:
    say(batch_of(ours), key_of(ours))
    assert Progress.objects.get().query == ours.query_id
    assert not DeadLetter.objects.exists()


def test_an_event_without_a_seal_is_set_aside_with_the_reason(ours: Run, say: Say) -> None:
    say(batch_of(ours), b"")
    assert _refusal() == f"it is not sealed by driver {ours.driver.epoch}"


@pytest.mark.guarantee("G-DRIVER-1")
def test_a_driver_cannot_speak_in_the_name_of_another(ours: Run, theirs: Run, say: Say) -> None:
    say(batch_of(ours), key_of(theirs))
    assert _refusal() == f"it is not sealed by driver {ours.driver.epoch}"


@pytest.mark.guarantee("G-DRIVER-1")
def test_a_driver_cannot_speak_of_anothers_run(ours: Run, theirs: Run, say: Say) -> None:
    say(batch_of(theirs, query=ours.query_id, run=ours.pk), key_of(theirs))
    assert _refusal() == f"run number {ours.pk} does not belong to driver {theirs.driver.epoch}"


def test_a_driver_cannot_call_its_run_one_of_another_query(
    ours: Run, theirs: Run, say: Say
) -> None:
    say(batch_of(theirs, query=ours.query_id), key_of(theirs))
    assert _refusal() == f"run number {theirs.pk} does not belong to query number {ours.query_id}"


def test_an_event_about_a_query_names_a_run(ours: Run, theirs: Run, say: Say) -> None:
    say(batch_of(theirs, query=ours.query_id, run=None), key_of(theirs))
    assert _refusal() == "it is about a query but contains no run"


def test_a_heartbeat_cannot_call_anothers_query_dead(ours: Run, theirs: Run, say: Say) -> None:
    beat = heartbeat(1)
    body = {**beat.body, "queries": [{"run": ours.pk, "alive": False, "task_at": None}]}
    about: dict[str, Any] = {"driver": theirs.driver_id, "epoch": theirs.driver.epoch}
    say(replace(beat, body=body, **about), key_of(theirs))
    assert _refusal() == f"run number {ours.pk} does not belong to driver {theirs.driver.epoch}"


def test_a_heartbeat_of_endless_length_asks_nothing_of_the_database(
    theirs: Run, django_assert_num_queries: Any
) -> None:
    beat = heartbeat(1)
    pulses = [{"run": number, "alive": True, "task_at": None} for number in range(2_000)]
    about: dict[str, Any] = {"driver": theirs.driver_id, "epoch": theirs.driver.epoch}
    event = replace(beat, body={**beat.body, "queries": pulses}, **about)
    with django_assert_num_queries(1):  # its driver
        found = Senders(hosts).refusals([(event, sealed(event.encode(), key_of(theirs)))])
    assert found == ["it names 2000 runs, more than 1000"]


def test_what_is_no_number_of_a_run_asks_for_none(theirs: Run) -> None:
    beat = heartbeat(1)
    body = {**beat.body, "queries": [{"run": 2**63}, {"run": "5"}, 5]}
    about: dict[str, Any] = {"driver": theirs.driver_id, "epoch": theirs.driver.epoch}
    event = replace(beat, body=body, **about)
    assert Senders(hosts).refusals([(event, sealed(event.encode(), key_of(theirs)))]) == [""]


def test_the_key_goes_with_the_epoch(ours: Run, say: Say) -> None:
    later = ours.driver.epoch + 1
    say(batch_of(ours, epoch=later), hosts.event_key(ours.driver_id, later))
    assert _refusal() == (
        f"driver number {ours.driver_id} has epoch {ours.driver.epoch}, not {later}"
    )


def test_a_driver_that_was_never_launched_is_not_heard(say: Say, db: None) -> None:
    say(progress(1, 0, driver=999), hosts.event_key(999, 7))
    assert _refusal() == "there is no driver number 999"


def test_a_flood_of_refused_entries_does_not_fill_the_log(
    ours: Run, say: Say, redis_client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for seq in range(50):
        redis_client.xadd(STREAM, {FIELD: batch_of(ours, seq=seq, batch=seq).encode()})
    say(batch_of(ours), b"")
    assert DeadLetter.objects.count() == 51
    lines = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert len(lines) == 6
    assert lines[-1] == "46 more entries are dead letters"


# --- spools -------------------------------------------------------------------------------
def _spooled(folder: Path, run: Run, *entries: tuple[int, bytes]) -> list[tuple[int, bytes]]:
    """Return what is believed of a spool that holds these lines."""
    epoch = run.driver.epoch
    place = folder / "ours" / str(epoch) / "own" / spool.FOLDER
    place.mkdir(parents=True)
    lines = b"".join(spool.line(seq, entry) for seq, entry in entries)
    (place / spool.segment_name(1)).write_bytes(lines)
    read = LocalProcessLauncher(folder, folder).spooled
    return list(believed_only(read, hosts)(epoch, 1))


@pytest.mark.guarantee("G-DRIVER-2")
def test_a_spool_gives_back_what_its_driver_has_sealed(ours: Run, tmp_path: Path) -> None:
    entry = sealed(batch_of(ours).encode(), key_of(ours))
    assert _spooled(tmp_path, ours, (1, entry)) == [(1, entry)]


def test_what_others_wrote_into_a_spool_is_passed_over_and_said(
    ours: Run, theirs: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = sealed(batch_of(ours).encode(), key_of(ours))
    forged = sealed(batch_of(ours, seq=2).encode(), key_of(theirs))
    moved = sealed(batch_of(ours, seq=3).encode(), key_of(ours))
    assert _spooled(tmp_path, ours, (1, good), (2, forged), (9_000, moved), (5, b'{"v":2}')) == [
        (1, good)
    ]
    epoch = ours.driver.epoch
    assert [record.message.partition("spool: ")[2] for record in caplog.records] == [
        f"it is not sealed by driver {epoch}",
        f"it is event 3 of driver {epoch}",
        "event version 2 is not 1",
    ]
