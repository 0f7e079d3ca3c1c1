"""What did not arrive is counted, fetched from the spool, or marked as beyond repair."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from headgate_ground import spool
from headgate_ground.wire import FIELD, EventKind, WireEvent
from listeners import models, streams
from listeners.loops.backlogs import GAPS, backlogs, current, of_host
from listeners.missing import gaps
from listeners.store import EventBatch, store
from listeners.streams import GROUP
from queries.launchers.process.launcher import LocalProcessLauncher
from queries.models.drivers import Host
from tests.listeners.events import STREAM, event, heartbeat, progress
from tests.listeners.rows import START

pytestmark = [pytest.mark.redis, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _group(redis_client: redis.Redis) -> None:
    redis_client.xgroup_create(STREAM, GROUP, id="0", mkstream=True)


@pytest.fixture
def drivers_dir(tmp_path: Path) -> Path:
    return tmp_path / "drivers"


def arrive(*events: WireEvent) -> None:
    batch = EventBatch(START)
    for one in events:
        batch.add(one)
    store(batch)


def spooled(drivers_dir: Path, events: Iterable[WireEvent], application: str = "flights") -> None:
    folder = drivers_dir / application / "7" / "own" / spool.FOLDER
    folder.mkdir(parents=True)
    lines = [spool.line(one.seq, one.encode()) for one in events]
    (folder / spool.segment_name(1)).write_bytes(b"".join(lines))


def judge_by(client: redis.Redis, spooled: spool.Spooled, *, after_s: float = 0) -> bool:
    now = START + timedelta(seconds=after_s)
    return gaps.judge(client=client, stream=STREAM, spooled=spooled, now=now)


def judge(client: redis.Redis, drivers_dir: Path, *, after_s: float = 0) -> bool:
    now = START + timedelta(seconds=after_s)
    spooled = LocalProcessLauncher(drivers_dir, drivers_dir).spooled
    return gaps.judge(client=client, stream=STREAM, spooled=spooled, now=now)


def test_a_sequence_without_holes_has_no_gap(redis_client: redis.Redis, drivers_dir: Path) -> None:
    arrive(heartbeat(1), progress(2, 0), event(EventKind.IDLE, 3, body={}), progress(4, 1))
    assert judge(redis_client, drivers_dir)
    assert models.Gap.objects.count() == 0


def test_a_driver_whose_entries_are_being_stored_is_judged_later_and_the_others_now(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    def of(driver: int, epoch: int) -> list[WireEvent]:
        return [replace(heartbeat(seq), driver=driver, epoch=epoch) for seq in (1, 3)]

    arrive(*of(1, 7), *of(2, 8))
    busy = streams.of_driver(STREAM, 8)
    streams.make_groups(redis_client, [busy])
    entry: Any = redis_client.xadd(busy, {FIELD: of(2, 8)[0].encode()})
    redis_client.xreadgroup(GROUP, "at work", {busy: ">"})
    assert judge(redis_client, drivers_dir)
    assert set(models.Gap.objects.values_list("driver", flat=True)) == {1}
    redis_client.xack(busy, GROUP, entry)
    assert judge(redis_client, drivers_dir)
    assert set(models.Gap.objects.values_list("driver", flat=True)) == {1, 2}


def test_a_hole_is_fetched_from_the_spool(redis_client: redis.Redis, drivers_dir: Path) -> None:
    events = [progress(number, number) for number in range(1, 9)]
    spooled(drivers_dir, events)
    arrive(*events[:2], *events[5:])
    judge(redis_client, drivers_dir)
    assert models.Progress.objects.count() == 8
    assert sorted(
        models.Progress.objects.filter(repaired=True).values_list("batch", flat=True)
    ) == [3, 4, 5]
    found = models.Gap.objects.order_by("kind")
    assert [(gap.kind, gap.first, gap.last, gap.repaired, gap.source) for gap in found] == [
        ("batch", 3, 5, 3, "spool"),
        ("seq", 3, 5, 3, "spool"),
    ]
    assert all(gap.closed_at == START and not gap.beyond_repair for gap in found)


def test_what_the_spool_does_not_hold_is_beyond_repair_and_counted(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    arrive(heartbeat(2), heartbeat(6))
    judge(redis_client, drivers_dir)
    judge(redis_client, drivers_dir, after_s=10)
    found = models.Gap.objects.order_by("first")
    assert [(gap.kind, gap.first, gap.last, gap.missing) for gap in found] == [
        ("seq", 1, 1, 1),
        ("seq", 3, 5, 3),
    ]
    assert all(gap.beyond_repair and gap.closed_at and gap.repaired == 0 for gap in found)


def test_part_of_a_hole_can_be_repaired(redis_client: redis.Redis, drivers_dir: Path) -> None:
    spooled(drivers_dir, [progress(3, 3)])
    arrive(progress(1, 1), progress(5, 5))
    judge(redis_client, drivers_dir)
    assert [
        (gap.first, gap.last, gap.beyond_repair) for gap in models.Gap.objects.filter(kind="seq")
    ] == [(2, 4, True)]
    assert models.Gap.objects.get(kind="seq").repaired == 1


def test_another_drivers_spool_is_left_alone(redis_client: redis.Redis, drivers_dir: Path) -> None:
    spooled(drivers_dir, [progress(2, 2, driver=99)])
    arrive(progress(1, 1), progress(3, 3))
    judge(redis_client, drivers_dir)
    assert models.Progress.objects.count() == 2


def test_nothing_is_judged_while_an_entry_is_still_being_stored(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    redis_client.xadd(STREAM, {"e": "in flight"})
    redis_client.xreadgroup(GROUP, "busy", {STREAM: ">"})
    arrive(progress(1, 1), progress(3, 3))
    assert not judge(redis_client, drivers_dir)
    assert models.Gap.objects.count() == 0


def test_without_a_group_nothing_is_judged(redis_client: redis.Redis, drivers_dir: Path) -> None:
    redis_client.xgroup_destroy(STREAM, GROUP)
    assert not judge(redis_client, drivers_dir)


def test_a_hole_in_batches_waits_for_the_drivers_memory_and_closes_when_it_comes(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    arrive(progress(1, 1), progress(2, 5))
    judge(redis_client, drivers_dir)
    gap = models.Gap.objects.get()
    assert (gap.kind, gap.query, gap.run, gap.first, gap.last) == ("batch", 42, 5, 2, 4)
    assert gap.closed_at is None
    arrive(progress(3, 2, repaired=True), progress(4, 3, repaired=True))
    judge(redis_client, drivers_dir, after_s=5)
    gap.refresh_from_db()
    assert (gap.repaired, gap.missing, gap.closed_at) == (2, 3, None)
    arrive(progress(5, 4, repaired=True))
    judge(redis_client, drivers_dir, after_s=10)
    gap.refresh_from_db()
    assert (gap.repaired, gap.source, gap.beyond_repair) == (3, "memory", False)
    assert gap.closed_at == START + timedelta(seconds=10)


def test_a_batch_that_never_comes_is_beyond_repair_until_it_does(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    arrive(progress(1, 1), progress(2, 3))
    judge(redis_client, drivers_dir)
    judge(redis_client, drivers_dir, after_s=600)
    assert models.Gap.objects.get().beyond_repair
    arrive(progress(3, 2, repaired=True))
    judge(redis_client, drivers_dir, after_s=700)
    gap = models.Gap.objects.get()
    assert (gap.repaired, gap.beyond_repair) == (1, False)


def test_the_tail_of_a_dead_driver_is_known_from_what_it_said(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    arrive(heartbeat(1), heartbeat(2))
    gaps.note_exit(driver=1, epoch=7, last_seq=4, at=START)
    judge(redis_client, drivers_dir)
    gap = models.Gap.objects.get()
    assert (gap.first, gap.last, gap.beyond_repair) == (3, 4, True)


def test_a_dead_driver_of_which_nothing_arrived_is_read_from_its_spool(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    spooled(drivers_dir, [progress(1, 1), progress(2, 2)])
    gaps.note_exit(driver=1, epoch=7, last_seq=3, at=START)
    judge(redis_client, drivers_dir)
    assert models.Progress.objects.count() == 2
    gap = models.Gap.objects.get()
    assert (gap.first, gap.last, gap.repaired, gap.beyond_repair) == (1, 3, 2, True)


def test_the_tail_of_a_killed_driver_is_fetched_from_its_spool(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    events = [progress(number, number) for number in range(1, 6)]
    spooled(drivers_dir, events)
    arrive(*events[:3])
    arrive(event(EventKind.DRIVER_EXIT, 0, query=None, run=None, body={"last_seq": None}))
    judge(redis_client, drivers_dir)
    assert models.Progress.objects.count() == 5
    gap = models.Gap.objects.get()
    assert (gap.kind, gap.missing, gap.repaired, gap.source) == ("seq", 2, 2, "spool")


def test_a_torn_line_of_a_spool_is_skipped(redis_client: redis.Redis, drivers_dir: Path) -> None:
    spooled(drivers_dir, [progress(2, 2)])
    [segment] = drivers_dir.rglob(f"*{spool.SUFFIX}")
    segment.write_bytes(segment.read_bytes() + b'4\t{"v":1,\n5\t{"no":"event"}\n6\t{"v"')
    arrive(progress(1, 1), progress(3, 3), progress(7, 7))
    judge(redis_client, drivers_dir)
    assert sorted(models.Progress.objects.values_list("batch", flat=True)) == [1, 2, 3, 7]


@pytest.mark.guarantee("G-HOST-1")
def test_the_holes_of_another_hosts_driver_are_left_to_that_host(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    """Its spool is there: here nothing of it could be found, and all would be called lost."""
    events = [progress(number, number) for number in range(1, 9)]
    arrive(*events[:2], *events[5:], event(EventKind.DRIVER_EXIT, 0, body={"last_seq": 9}))
    look: dict[str, Any] = {"client": redis_client, "stream": STREAM, "now": START}
    nothing_here = LocalProcessLauncher(drivers_dir / "a", drivers_dir).spooled
    gaps.judge(**look, spooled=nothing_here, host="host-a", drivers_here=lambda ids: set())
    assert models.Gap.objects.count() == 0

    spooled(drivers_dir / "b", [*events, progress(9, 9)])
    there = LocalProcessLauncher(drivers_dir / "b", drivers_dir).spooled
    gaps.judge(**look, spooled=there, host="host-b", drivers_here=lambda ids: set(ids))
    found = models.Gap.objects.filter(kind="seq").order_by("first")
    assert [(gap.first, gap.last, gap.repaired, gap.beyond_repair) for gap in found] == [
        (3, 5, 3, False),
        (9, 9, 1, False),
    ]


def test_one_drivers_trouble_stops_the_judging_of_no_other(
    redis_client: redis.Redis, drivers_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The spool of driver 1 raises as soon as it is opened; driver 2 has a hole, too."""
    ours = [progress(number, number, driver=2, epoch=8) for number in range(1, 4)]
    arrive(progress(1, 1), progress(3, 3))
    arrive(*(replace(one, run=6, spark_run_id="other") for one in (ours[0], ours[2])))

    def spooled(epoch: int, first: int) -> Iterator[tuple[int, bytes]]:
        if epoch == 7:
            raise OSError(5, "Input/output error")
        yield 2, replace(ours[1], run=6, spark_run_id="other").encode()

    for seconds in (0, 10, 20):
        assert judge_by(redis_client, spooled, after_s=seconds)
    seq = models.Gap.objects.filter(kind="seq").order_by("driver")
    assert [(gap.driver, gap.repaired, gap.beyond_repair) for gap in seq] == [
        (1, 0, False),  # nobody could look: it is not lost yet
        (2, 1, False),
    ]
    assert sum("Input/output error" in record.getMessage() for record in caplog.records) == 1
    [shown] = current(datetime.now(UTC))
    assert (shown.loop, shown.about) == ("gaps", "the spool of driver 1")
    [left] = [one for one in backlogs() if one.name == GAPS]
    assert (left.rows, left.since) == (1, START)
    spooled_again = LocalProcessLauncher(drivers_dir, drivers_dir).spooled
    judge_by(redis_client, spooled_again, after_s=30)
    assert seq.all()[0].beyond_repair  # now it was asked, and had nothing
    assert current(datetime.now(UTC)) == []


def test_a_dead_driver_whose_spool_cannot_be_read_is_set_aside_after_an_hour(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    def spooled(epoch: int, first: int) -> Iterator[tuple[int, bytes]]:
        if epoch == 7:
            raise OSError(5, "Input/output error")
        yield from ()

    gaps.note_exit(driver=1, epoch=7, last_seq=None, at=START)
    gaps.note_exit(driver=2, epoch=8, last_seq=2, at=START)
    judge_by(redis_client, spooled)
    judge_by(redis_client, spooled, after_s=10)
    assert [gap.driver for gap in models.Gap.objects.all()] == [2]
    assert not models.Cursor.objects.filter(name="exits", position__gt=0).exists()
    judge_by(redis_client, spooled, after_s=3700)
    assert models.Cursor.objects.get(name="exits").position == models.Event.objects.last().pk  # type: ignore[union-attr]
    assert any(one.set_aside for one in current(datetime.now(UTC)))


def test_a_long_hole_is_repaired_over_several_calls_and_is_not_lost_meanwhile(
    redis_client: redis.Redis, drivers_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "MOST_REPAIRED", 3)
    events = [progress(number, number) for number in range(1, 9)]
    spooled(drivers_dir, events)
    arrive(events[0], events[7])
    judge(redis_client, drivers_dir)
    gap = models.Gap.objects.get(kind="seq")
    assert (gap.repaired, gap.missing, gap.closed_at, gap.beyond_repair) == (3, 6, None, False)
    judge(redis_client, drivers_dir, after_s=10)
    judge(redis_client, drivers_dir, after_s=20)
    gap.refresh_from_db()
    assert (gap.repaired, gap.beyond_repair) == (6, False)
    assert gap.closed_at is not None


def test_an_empty_spool_has_nothing_and_stops_nothing(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    (drivers_dir / "flights" / "7" / "own" / spool.FOLDER).mkdir(parents=True)
    gaps.note_exit(driver=1, epoch=7, last_seq=None, at=START)
    arrive(heartbeat(1), heartbeat(3))
    assert judge(redis_client, drivers_dir)
    assert models.Gap.objects.get().beyond_repair


def test_a_host_at_work_keeps_no_other_from_judging(redis_client: redis.Redis) -> None:
    arrive(heartbeat(1))
    busy = datetime.now(UTC) + timedelta(seconds=30)
    models.Cursor.objects.create(name=of_host(GAPS, "host-a"), leased_until=busy)
    look: dict[str, Any] = {"client": redis_client, "stream": STREAM, "now": START}
    assert not gaps.judge(**look, spooled=lambda *_: (), host="host-a")
    assert gaps.judge(**look, spooled=lambda *_: (), host="host-b")


def test_the_backlog_of_gaps_is_that_of_the_living_hosts(redis_client: redis.Redis) -> None:
    def unreadable(epoch: int, first: int) -> Iterator[tuple[int, bytes]]:
        raise OSError(5, "Input/output error")

    arrive(heartbeat(1), heartbeat(3))
    arrive(*(replace(heartbeat(number), driver=2, epoch=8) for number in (1, 3)))
    now = datetime.now(UTC)
    Host.objects.bulk_create(
        Host(name=name, seen_at=at)
        for name, at in (("host-a", now), ("host-b", now), ("gone", START))
    )
    for name, its_driver, after_s in (("host-a", 1, 0), ("host-b", 2, 10), ("gone", 1, 0)):
        gaps.judge(
            client=redis_client,
            stream=STREAM,
            spooled=unreadable,
            now=START + timedelta(seconds=after_s),
            host=name,
            drivers_here={its_driver}.intersection,
        )
    long_ago = models.Cursor.objects.filter(name=of_host(GAPS, "gone"))
    assert long_ago.update(ran_at=START) == 1
    [left] = [one for one in backlogs() if one.name == GAPS]
    assert (left.rows, left.since) == (2, START)
    assert left.ran_at is not None
    assert left.ran_at >= now


def test_the_ends_of_another_hosts_drivers_hold_up_nobody(redis_client: redis.Redis) -> None:
    """Their spools are not here: they are neither read nor waited for."""

    def unreadable(epoch: int, first: int) -> Iterator[tuple[int, bytes]]:
        raise AssertionError("nothing of it is here")

    arrive(heartbeat(1))
    gaps.note_exit(driver=1, epoch=7, last_seq=None, at=START)
    look: dict[str, Any] = {"client": redis_client, "stream": STREAM, "now": START}
    gaps.judge(**look, spooled=unreadable, host="host-a", drivers_here=lambda ids: set())
    read_to = models.Cursor.objects.get(name=of_host("exits", "host-a")).position
    assert read_to == models.Event.objects.order_by("pk").values_list("pk", flat=True).last()
    assert current(datetime.now(UTC)) == []


def test_a_dead_driver_whose_spool_nobody_can_read_for_an_hour_keeps_no_gap_open(
    redis_client: redis.Redis,
) -> None:
    """Nothing of it has arrived, and its end, which names its last event, is read once."""

    def spooled(epoch: int, first: int) -> Iterator[tuple[int, bytes]]:
        raise OSError(5, "Input/output error")

    gaps.note_exit(driver=1, epoch=7, last_seq=3, at=START)
    for seconds in (0, 10, 3590):
        judge_by(redis_client, spooled, after_s=seconds)
        assert models.Gap.objects.get().closed_at is None  # it is not lost yet
    judge_by(redis_client, spooled, after_s=3700)
    gap = models.Gap.objects.get()
    assert (gap.closed_at, gap.beyond_repair) == (START + timedelta(seconds=3700), True)


def test_a_dead_driver_whose_spool_can_be_read_again_is_repaired_though_its_end_was_read(
    redis_client: redis.Redis, drivers_dir: Path
) -> None:
    def unreadable(epoch: int, first: int) -> Iterator[tuple[int, bytes]]:
        raise OSError(5, "Input/output error")

    spooled(drivers_dir, [progress(1, 1), progress(2, 2)])
    gaps.note_exit(driver=1, epoch=7, last_seq=2, at=START)
    judge_by(redis_client, unreadable)
    judge(redis_client, drivers_dir, after_s=10)
    gap = models.Gap.objects.get()
    assert (gap.repaired, gap.beyond_repair, gap.closed_at is None) == (2, False, False)


def test_what_is_stored_while_gaps_are_judged_is_not_taken_back(
    redis_client: redis.Redis, drivers_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another path stores the batch, and closes the gap, after the judging has read its rows."""
    arrive(progress(1, 1), progress(2, 4))
    judge(redis_client, drivers_dir)
    arrive(progress(3, 2, repaired=True))
    found = gaps._find_missing
    reads: list[int] = []

    def then_another(*args: Any) -> list[gaps.MissingEvents]:
        missing = found(*args)
        reads.append(1)
        if len(reads) == 2:
            arrive(progress(4, 3, repaired=True))
            gap = models.Gap.objects.get()
            gaps.settle(gap, now=START, hopeless=True, source="checkpoint")
        return missing

    monkeypatch.setattr(gaps, "_find_missing", then_another)
    judge(redis_client, drivers_dir, after_s=600)
    gap = models.Gap.objects.get()
    assert (gap.repaired, gap.beyond_repair, gap.closed_at) == (2, False, START)
