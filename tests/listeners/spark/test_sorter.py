"""What the bus said becomes events: of a known run, once, with holes found and filled."""

import json
import math
from typing import Any

import pytest

from headgate_ground.wire import EventKind, WireEvent
from listeners.spark.listener import BusEvent
from listeners.spark.outbox import TelemetrySettings
from listeners.spark.sorter import (
    DriverMessage,
    RecalledRun,
    RunBatches,
    RunKnown,
    Sorter,
    recent_executed,
)

RUN = "178dd0f9-bb3e-401d-aa33-19997acd7700"
KNOWN = RunKnown(query=42, run=5, spark_run_id=RUN, jquery=None)


@pytest.fixture
def told() -> list[WireEvent]:
    return []


@pytest.fixture
def sorter(told: list[WireEvent]) -> Sorter:
    settings = TelemetrySettings(hold_s=10, hold_events=3)
    return Sorter(driver=1, epoch=7, settings=settings, emit=told.append, mask=_masked)


def _masked(body: Any) -> Any:
    """Stand in for what the runtime gives the telemetry to take secrets out with."""
    return json.loads(json.dumps(body).replace("tr0ub4dor", "••••••"))


def heard(kind: EventKind, **body: Any) -> BusEvent:
    return BusEvent(kind, json.dumps({"runId": RUN, **body}), 1_780_000_000.0)


def batch(number: int, ended: float = 0.0) -> dict[str, Any]:
    stamp = f"2026-03-01T12:00:{ended:06.3f}Z"
    return {"runId": RUN, "batchId": number, "timestamp": stamp, "durationMs": {"addBatch": 1}}


def progress(number: int) -> BusEvent:
    return BusEvent(EventKind.PROGRESS, json.dumps({"progress": batch(number)}), 1_780_000_000.0)


def test_an_event_waits_until_its_run_is_known(sorter: Sorter, told: list[WireEvent]) -> None:
    sorter.take(heard(EventKind.STARTED))
    sorter.take(progress(3))
    assert told == []
    sorter.take(KNOWN)
    assert [(one.kind, one.query, one.run, one.batch) for one in told] == [
        (EventKind.STARTED, 42, 5, None),
        (EventKind.PROGRESS, 42, 5, 3),
    ]


def test_a_run_that_nobody_names_is_told_of_without_a_name(
    sorter: Sorter, told: list[WireEvent]
) -> None:
    for number in range(4):  # one more than may wait
        sorter.take(progress(number))
    assert [(one.query, one.spark_run_id) for one in told] == [(None, RUN)] * 4


def test_what_waits_too_long_or_to_the_end_is_let_go(sorter: Sorter, told: list[WireEvent]) -> None:
    sorter.take(progress(1))
    sorter.release_waiting(0)
    assert told == []
    sorter.release_waiting(float("inf"))
    assert len(told) == 1
    sorter.take(progress(2))
    sorter.release_waiting(math.inf)
    assert len(told) == 2


def test_a_batch_is_told_once(sorter: Sorter, told: list[WireEvent]) -> None:
    sorter.take(KNOWN)
    for number in (1, 2, 2, 1):
        sorter.take(progress(number))
    assert [one.batch for one in told] == [1, 2]


def test_a_hole_is_filled_from_memory_and_both_are_counted(
    sorter: Sorter, told: list[WireEvent]
) -> None:
    sorter.take(KNOWN)
    sorter.take(progress(1))
    sorter.take(progress(4))
    assert sorter.losses() == (2, 0)
    sorter.take(RecalledRun(RUN, [batch(number) for number in (1, 2, 3, 4)], overdue_at=0.0))
    assert [(one.batch, one.repaired) for one in told[2:]] == [(2, True), (3, True)]
    assert sorter.losses() == (2, 2)


def test_a_batch_that_may_still_come_is_left_to_the_bus(
    sorter: Sorter, told: list[WireEvent]
) -> None:
    sorter.take(KNOWN)
    sorter.take(progress(1))
    newest = [batch(1), batch(2, ended=30)]
    sorter.take(RecalledRun(RUN, newest, overdue_at=0.0))
    assert len(told) == 1
    sorter.take(RecalledRun(RUN, newest, overdue_at=None))  # the run has ended
    assert [(one.batch, one.repaired) for one in told] == [(1, False), (2, True)]
    sorter.take(progress(2))
    assert len(told) == 2


def test_the_end_of_a_run_can_be_waited_for(sorter: Sorter) -> None:
    assert sorter.terminated(RUN, 0) is None
    sorter.take(heard(EventKind.TERMINATED, errorClassOnException="DIVIDE_BY_ZERO"))
    end = sorter.terminated(RUN, 0)
    assert end is not None
    assert end["errorClassOnException"] == "DIVIDE_BY_ZERO"


def test_what_the_driver_says_itself_needs_no_run(sorter: Sorter, told: list[WireEvent]) -> None:
    sorter.take(DriverMessage(EventKind.START_ERROR, {"message": "no"}, query=42, run=5))
    assert (told[0].kind, told[0].query, told[0].run) == (EventKind.START_ERROR, 42, 5)


def test_a_hole_older_than_memory_is_given_up_and_stays_counted() -> None:
    batches = RunBatches()
    batches.note_reported(1)
    batches.note_reported(500)
    batches.recall([batch(450), batch(499)], overdue_at=None)
    assert (batches.missing, batches.repaired) == (498, 2)
    assert min(batches.holes) > 450


def test_only_executed_batches_are_remembered() -> None:
    idle = {"batchId": 0, "durationMs": {"latestOffset": 1}}
    text = f"Array({json.dumps(batch(7))}, {json.dumps(idle)})"

    class Jvm:
        """Prints an array as Scala does."""

        class scala:
            class runtime:
                class ScalaRunTime:
                    @staticmethod
                    def stringOf(_: Any) -> str:
                        return text

    class Query:
        def recentProgress(self) -> None:
            return None

    assert [one["batchId"] for one in recent_executed(Jvm, Query())] == [7]


def test_no_text_of_an_event_leaves_the_driver_unmasked(
    sorter: Sorter, told: list[WireEvent]
) -> None:
    sorter.take(KNOWN)
    sorter.take(heard(EventKind.TERMINATED, exception="login of tr0ub4dor refused"))
    sorter.take(
        DriverMessage(EventKind.START_ERROR, {"error_class": "", "message": "tr0ub4dor"}, 42, 5)
    )
    sorter.take(DriverMessage(EventKind.HEARTBEAT, {"listeners": [{"last_error": "tr0ub4dor"}]}))
    assert len(told) == 3
    assert b"tr0ub4dor" not in b"".join(event.encode() for event in told)
