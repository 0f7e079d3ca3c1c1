"""A remote that misbehaves, over real TCP: its effect is bounded, named, and heals."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from headgate_async.calls import NAMES, Backoff, CallTimedOut, Rules
from headgate_async.operator import Plan, is_blocking, matcher, takes_client
from headgate_async.task import COUNTS, VISIBLE, run
from headgate_async.worker_state import registry
from tests.headgate_async.remote import Remote, RemoteFailed, connect, connect_blocking, remote

SCHEMA = pa.schema([("number", pa.int64()), ("answer", pa.string())])


@pytest.fixture
def service() -> Iterator[Remote]:
    with remote(latency_ms=2.0) as made:
        yield made


async def ask(row: Any, client: Any) -> tuple[int, str]:
    return row.number, await client.ask(f"{row.number}")


def ask_blocking(row: Any, client: Any) -> tuple[int, str]:
    return row.number, client.ask(f"{row.number}")


def plan(service: Remote, enrich: Any = ask, **changed: Any) -> Plan:
    rules = {
        "timeout_s": 0.5,
        "retries": 20,
        "transient": matcher("transient", (ConnectionError, TimeoutError, RemoteFailed)),
        "broken": matcher("broken", (ConnectionError, EOFError)),
        "backoff": Backoff(first_s=0.01, most_s=0.2),
        **{key: changed.pop(key) for key in list(changed) if key in Rules.__dataclass_fields__},
    }
    blocking = is_blocking(enrich)
    return Plan(
        **{
            "operator": f"test-{id(changed)}-{service.port}",
            "enrich": enrich,
            "setup": partial(connect_blocking if blocking else connect, service.port),
            "blocking": blocking,
            "with_client": takes_client(enrich),
            "in_flight": 32,
            "cap": 32,
            "rules": Rules(**rules),
            "calls_per_second": None,
            "key": ("key",),
            "order_by": (),
            "identity": None,
            "hold": 256,
            "schema": SCHEMA,
            **changed,
        }
    )


def batches(count: int, *, keys: int = 50, size: int = 100) -> Iterator[pa.RecordBatch]:
    for first in range(0, count, size):
        numbers = list(range(first, min(count, first + size)))
        yield pa.RecordBatch.from_pydict(
            {"key": [f"k{one % keys}" for one in numbers], "number": numbers}
        )


class Seen:
    """What a task gave back."""

    def __init__(self, given: Iterator[pa.RecordBatch]) -> None:
        self.rows: list[dict[str, Any]] = []
        self.counts = dict.fromkeys(NAMES, 0.0)
        for batch in given:
            for row in batch.to_pylist():
                for name, value in zip(NAMES, row[COUNTS] or [], strict=False):
                    self.counts[name] += value
                if row[VISIBLE]:
                    self.rows.append(row)

    @property
    def numbers(self) -> list[int]:
        return sorted(row["number"] for row in self.rows if row["number"] is not None)


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    registry().close()


def check_all(seen: Seen, count: int) -> None:
    assert seen.numbers == list(range(count))
    assert {row["answer"] for row in seen.rows} == {f"{one}-answer" for one in range(count)}


@pytest.mark.parametrize("enrich", [ask, ask_blocking])
def test_a_well_behaved_remote_answers_each_row_once(service: Remote, enrich: Any) -> None:
    seen = Seen(run(plan(service, enrich, timeout_s=30.0), batches(1000)))
    check_all(seen, 1000)
    assert seen.counts["calls"] == 1000
    assert seen.counts["errors"] == 0


@pytest.mark.parametrize(
    "manners",
    [
        {"jitter_ms": 20.0},
        {"twice": 0.5},
        {"twice": 0.3, "jitter_ms": 10.0},
        {"failing": 0.2},
        {"closing": 0.01},
        {"hanging": 0.01},
    ],
    ids=lambda manners: "+".join(manners),
)
def test_a_rude_remote_costs_retries_and_no_row(service: Remote, manners: dict[str, float]) -> None:
    service.behave(**manners)
    seen = Seen(run(plan(service), batches(1000)))
    check_all(seen, 1000)
    rude = not {"jitter_ms", "twice"}.issuperset(manners)
    assert (seen.counts["errors"] > 0) == rude
    assert seen.counts["retries"] == seen.counts["errors"]
    if "closing" in manners:
        assert seen.counts["opened"] > 1


def test_a_blocking_client_that_broke_is_opened_again(service: Remote) -> None:
    service.behave(closing=0.02)
    seen = Seen(run(plan(service, ask_blocking), batches(500)))
    check_all(seen, 500)
    assert seen.counts["errors"] > 0


def test_a_remote_that_hangs_for_good_ends_in_a_named_time_out(service: Remote) -> None:
    service.behave(hanging=1.0)
    with pytest.raises(CallTimedOut, match=r"no response within 0\.2 s") as caught:
        Seen(run(plan(service, timeout_s=0.2, retries=1), batches(100)))
    assert "failed after 2 tries" in caught.value.__notes__[0]


def test_a_remote_that_refuses_ends_in_its_own_error(service: Remote) -> None:
    service.end()
    with pytest.raises(ConnectionRefusedError) as caught:
        Seen(run(plan(service, retries=2), batches(100)))
    assert "failed after 3 tries" in caught.value.__notes__[0]


def test_dead_letters_hold_row_error_and_identity(service: Remote) -> None:
    service.behave(failing=1.0)
    seen = Seen(run(plan(service, retries=1, dead_letters=True), batches(20)))
    assert [row["number"] for row in seen.rows] == [None] * 20
    letters = [row["dead_letter"] for row in seen.rows]
    assert {one["error"] for one in letters} == {"RemoteFailed: !error-answer"}
    assert len({one["identity"] for one in letters}) == 20
    assert '{"key": "k3", "number": 3}' in {one["row"] for one in letters}
    assert seen.counts["dead_letters"] == 20


def meanwhile(source: Iterator[pa.RecordBatch], at: int, act: Callable[[], None]) -> Any:
    """Yield batches, and act once before the one of this number."""
    for number, batch in enumerate(source):
        if number == at:
            act()
        yield batch


def test_a_remote_that_goes_away_and_comes_back_loses_nothing(service: Remote) -> None:
    def restart() -> None:
        service.end()
        service.start()

    seen = Seen(run(plan(service, retries=100), meanwhile(batches(2000), 10, restart)))
    check_all(seen, 2000)
    assert seen.counts["opened"] >= 2


def test_a_remote_that_slows_tenfold_in_the_middle_is_waited_for(service: Remote) -> None:
    slow = partial(service.behave, latency_ms=20.0)
    # A busy machine may stop this process for longer than the short timeout of the other tests.
    patient = plan(service, in_flight="auto", cap=64, timeout_s=30.0)
    seen = Seen(run(patient, meanwhile(batches(3000), 15, slow)))
    check_all(seen, 3000)
    assert seen.counts["errors"] == 0
    assert seen.counts["busy_ms"] / seen.counts["calls"] > 10


def test_a_task_that_is_dropped_leaves_no_call_behind(service: Remote) -> None:
    service.behave(hanging=1.0)
    stopped = plan(service, timeout_s=60.0)

    def broken_off() -> Iterator[pa.RecordBatch]:
        yield from batches(100)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Seen(run(stopped, broken_off()))
    kept = registry().acquire(stopped.operator, lambda: pytest.fail("it was thrown away"))

    async def calls() -> list[str]:
        return [str(task.get_coro()) for task in asyncio.all_tasks()]

    try:
        assert not any("_lane" in name for name in kept.run(calls()).result(10))
    finally:
        registry().release(stopped.operator, kept)


def test_clients_are_kept_from_task_to_task(service: Remote) -> None:
    kept = plan(service)
    first, second = (Seen(run(kept, batches(100))) for _ in range(2))
    assert (first.counts["opened"], second.counts["opened"]) == (1, 0)


def test_rows_held_never_exceed_the_bound(service: Remote) -> None:
    taken = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal taken
        for batch in batches(5000, size=10):
            taken += batch.num_rows
            yield batch

    given = 0
    most = 0
    for batch in run(plan(service, hold=256), counted()):
        most = max(most, taken - given)
        given += batch.num_rows
    assert given == 5000
    assert most <= 256 + 32 + 10  # a slice and an Arrow batch may be in the hand


def test_results_come_in_the_sources_order_where_that_is_asked_for(service: Remote) -> None:
    service.behave(jitter_ms=10.0)
    seen = Seen(run(plan(service, ordered=True), batches(1000)))
    assert [row["number"] for row in seen.rows] == list(range(1000))


def test_one_call_at_a_time_goes_by_the_sources_order(service: Remote) -> None:
    seen = Seen(run(plan(service, in_flight="sequential", cap=1), batches(100)))
    assert [row["number"] for row in seen.rows] == list(range(100))
    assert seen.counts["busy_ms"] <= seen.counts["wall_ms"] * 1.05
