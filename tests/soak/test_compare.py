"""The soak's judge finds what is missing, doubled, changed or foreign, and nothing else."""

import json
import os
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from tests.soak import compare, faults
from tests.soak.checkpoint import Batches

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
FLIGHTS = {(0, 0): "a", (0, 1): "b", (1, 0): "c"}
BATCHES = {(0, 0): 0, (0, 1): 1, (1, 0): 1}


def wrong(result: compare.Result) -> dict[str, list[object]]:
    """Return what a result finds wrong, without the empty kinds."""
    return {kind: found for kind, found in result.wrong.items() if found}


# --- sinks that write once --------------------------------------------------------------------
def test_the_same_rows_in_any_order_hold() -> None:
    result = compare.rows(["a", "b", "b"], ["b", "a", "b"])
    assert result.holds
    assert result.compared == 3


@pytest.mark.parametrize(
    ("found", "finds"),
    [
        (["a"], {"missing": ["b"]}),
        (["a", "b", "b"], {"doubled": ["b"]}),
        (["a", "b", "x"], {"unexpected": ["x"]}),
        (["a", "B"], {"missing": ["b"], "unexpected": ["B"]}),
    ],
)
def test_a_row_that_is_missing_doubled_foreign_or_changed_is_found(
    found: list[str], finds: dict[str, list[str]]
) -> None:
    result = compare.rows(["a", "b"], found)
    assert not result.holds
    assert wrong(result) == finds


# --- sinks that may write a batch again -------------------------------------------------------
def written(*more: tuple[compare.Place, str]) -> list[tuple[compare.Place, str]]:
    return [*FLIGHTS.items(), *more]


def test_duplicates_of_a_replayed_batch_are_counted_and_hold() -> None:
    found = written(((0, 1), "b"), ((0, 1), "b"), ((1, 0), "c"))
    result = compare.replays(FLIGHTS, found, batches=BATCHES, replayed={1})
    assert result.holds
    assert result.counted == {"duplicates": 3, "batches with duplicates": [1]}


@pytest.mark.parametrize(
    ("found", "finds"),
    [
        (written()[1:], {"missing": [(0, 0)]}),
        (written(((0, 0), "a")), {"doubled outside of replayed batches": [(0, 0)]}),
        (written(((0, 1), "B")), {"changed": [((0, 1), "B")]}),
        (written(((2, 0), "z")), {"unexpected": [(2, 0)]}),
    ],
)
def test_a_record_that_is_missing_doubled_elsewhere_changed_or_foreign_is_found(
    found: list[tuple[compare.Place, str]], finds: dict[str, list[object]]
) -> None:
    assert wrong(compare.replays(FLIGHTS, found, batches=BATCHES, replayed={1})) == finds


# --- sinks in update mode ---------------------------------------------------------------------
def test_only_the_last_value_of_a_key_counts() -> None:
    result = compare.last_values({"n1": "2"}, [("n1", "1"), ("n1", "2"), ("n1", "2")])
    assert result.holds
    assert result.counted == {"values written": 3}


@pytest.mark.parametrize(
    ("found", "finds"),
    [
        ([("n1", "2"), ("n1", "1"), ("n2", "1")], {"changed": [("n1", "2", "1")]}),
        ([("n1", "2")], {"missing": ["n2"]}),
        ([("n1", "2"), ("n2", "1"), ("n3", "1")], {"unexpected": ["n3"]}),
    ],
)
def test_an_old_a_missing_and_a_foreign_key_are_found(
    found: list[tuple[str, str]], finds: dict[str, list[object]]
) -> None:
    assert wrong(compare.last_values({"n1": "2", "n2": "1"}, found)) == finds


# --- late rows --------------------------------------------------------------------------------
def test_the_ledger_holds_the_late_rows_of_the_batches_that_were_reported() -> None:
    result = compare.late({4: 2, 5: 3}, told={4}, ledger=2, missing_batches=1)
    assert result.holds
    assert result.counted == {
        "in the ledger": 2,
        "in batches without a report": 3,
        "in batches not executed again": 0,
    }


def test_of_a_batch_that_the_sink_had_already_the_ledger_holds_nothing() -> None:
    seen = {4: 2, 5: 3}
    result = compare.late(seen, told={4, 5}, ledger=2, missing_batches=0, not_executed={5})
    assert result.holds
    assert result.counted["in batches not executed again"] == 3
    assert not compare.late(seen, told={4, 5}, ledger=5, missing_batches=0, not_executed={5}).holds


@pytest.mark.parametrize(
    ("ledger", "missing", "finds"), [(4, 1, {"ledger"}), (2, 0, {"not counted as missing"})]
)
def test_a_wrong_ledger_and_a_batch_that_is_silently_missing_are_found(
    ledger: int, missing: int, finds: set[str]
) -> None:
    result = compare.late({4: 2, 5: 3}, told={4}, ledger=ledger, missing_batches=missing)
    assert set(wrong(result)) == finds


# --- the checkpoint ---------------------------------------------------------------------------
def checkpoint(folder: Path, *batches: tuple[int, float, float]) -> Path:
    """Write batches as (end offset, seconds at which it began, and was done)."""
    for number, (end, began, done) in enumerate(batches):
        header = json.dumps({"batchWatermarkMs": end * 1000})
        source = json.dumps({"t": {"0": end, "1": 7}})
        for log, text, at in (
            ("offsets", f"v1\n{header}\n{source}", began),
            ("commits", "v1\n{}", done),
        ):
            file = folder / log / str(number)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
            when = BEGAN.timestamp() + at
            os.utime(file, (when, when))
    return folder


def test_each_record_belongs_to_the_batch_that_read_it(tmp_path: Path) -> None:
    batches = Batches(checkpoint(tmp_path, (2, 0, 1), (2, 2, 3), (5, 4, 5)), "t")
    assert [batches.of((0, offset)) for offset in range(5)] == [0, 0, 2, 2, 2]
    assert batches.of((1, 6)) == 0
    assert batches.watermarks == [2000, 2000, 5000]


def test_a_batch_was_replayed_where_a_run_began_between_its_two_entries(tmp_path: Path) -> None:
    batches = Batches(checkpoint(tmp_path, (1, 0, 1), (2, 2, 30), (3, 31, 32)), "t")
    starts = [BEGAN - timedelta(seconds=5), BEGAN + timedelta(seconds=10)]
    assert batches.replayed(starts) == {1}
    assert batches.replayed([BEGAN + timedelta(seconds=30.5)]) == set()


def test_a_query_has_recovered_when_it_has_begun_and_committed_a_batch(tmp_path: Path) -> None:
    batches = Batches(checkpoint(tmp_path, (1, 0, 1), (2, 2, 30), (3, 31, 34)), "t")
    assert batches.next_commit(BEGAN + timedelta(seconds=1)) == 29
    assert batches.next_commit(BEGAN + timedelta(seconds=10)) == 24
    with pytest.raises(ValueError, match="empty"):
        batches.next_commit(BEGAN + timedelta(seconds=40))


def test_a_checkpoint_that_has_forgotten_batches_is_not_judged(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, (1, 0, 1), (2, 2, 3))
    (folder / "commits" / "0").unlink()
    with pytest.raises(AssertionError, match="does not hold all of its batches"):
        Batches(folder, "t")


def test_faults_that_seldom_met_a_process_have_shown_nothing() -> None:
    assert compare.met(60, ["kill jvm of a"] * 6).holds
    assert not compare.met(60, ["kill jvm of a"] * 7).holds


# --- the faults -------------------------------------------------------------------------------
def test_the_same_seed_draws_the_same_faults_one_a_minute_and_each_kind() -> None:
    def drawn(seed: int) -> list[faults.Fault]:
        return faults.draw(seed, minutes=60, every_s=60, applications=["a", "b"])

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    minutes = [int(one.at_s // 60) for one in drawn(7)]
    assert minutes == sorted(set(minutes))
    assert minutes == [0, *(int(one.until_s // 60) for one in drawn(7)[:-1])]
    for one in drawn(7):
        left_s = one.until_s - one.at_s - one.seconds
        assert left_s >= (50 if one.act == faults.LONG_FREEZE else 10)
    assert {(one.act, one.part) for one in drawn(7)} == set(faults.KINDS)
    on_s3 = faults.draw(7, minutes=18, every_s=60, applications=["a"], kinds=faults.KINDS_ON_S3)
    for one in drawn(7):
        assert one.act != faults.LONG_FREEZE or 60 <= one.seconds <= 200
    assert ("kill", faults.STORE) in {(one.act, one.part) for one in on_s3}


def test_a_long_freeze_catches_a_program_within_a_write_and_wakes_it() -> None:
    process = psutil.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    asked: list[str] = []

    def writes() -> bool:
        asked.append(process.status())
        return len(asked) == 3

    over = threading.Event()
    over.set()  # nobody waits for its end
    try:
        fault = faults.Fault(0.0, faults.LONG_FREEZE, "ingester", "", 60.0)
        faults.do(fault, process, over=over, again=None, writes=writes)
        assert len(asked) == 3
        assert process.status() != psutil.STATUS_STOPPED
    finally:
        process.kill()
        process.wait(30)
