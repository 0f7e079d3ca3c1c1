"""The scheduler under random latencies, errors and cancellations, in virtual time."""

import asyncio
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_async.calls import (
    AsyncMapError,
    Backoff,
    CallStuck,
    CallTimedOut,
    Counts,
    Outcome,
    Pace,
    Rules,
)
from headgate_async.limiter import Fixed
from headgate_async.scheduler import Scheduler
from tests.examples import examples
from tests.headgate_async.virtual_time import run

TIMEOUT_S = 1.0


class Passing(Exception):
    """What the remote may say, and will not say for ever."""


class Final(Exception):
    """What the remote will say again."""


@dataclass(frozen=True)
class Row:
    """A row with the story of its calls: a latency and an end for each try; the last one stays."""

    number: int
    key: Hashable
    story: tuple[tuple[float, str], ...] = ((0.0, "answers"),)

    def part(self, tried: int) -> tuple[float, str]:
        return self.story[min(tried, len(self.story) - 1)]


@dataclass
class Remote:
    """Plays the stories, and watches what is asked of it."""

    at_once: int = 0
    most: int = 0
    by_key: dict[Hashable, int] = field(default_factory=lambda: defaultdict(int))
    tries: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    begun: list[Row] = field(default_factory=list)
    inversions: list[Row] = field(default_factory=list)
    finished: set[int] = field(default_factory=set)

    async def call(self, row: Row, client: Any) -> int:
        latency, end = row.part(self.tries[row.number])
        self.tries[row.number] += 1
        if self.tries[row.number] == 1:
            self.begun.append(row)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        if row.key is not None:
            self.by_key[row.key] += 1
            if self.by_key[row.key] > 1:
                self.inversions.append(row)
        try:
            if latency or end == "hangs":
                await asyncio.sleep(1e6 if end == "hangs" else latency)
            if end == "fails in passing":
                raise Passing
            if end == "fails":
                raise Final
            return row.number
        finally:
            self.at_once -= 1
            if row.key is not None:
                self.by_key[row.key] -= 1


@dataclass
class Stage:
    """A scheduler, its remote, and what it gave."""

    remote: Remote
    outcomes: list[Outcome] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
    end: asyncio.Future[BaseException | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def give(self, outcomes: list[Outcome], counts: Counts) -> None:
        assert not self.end.done()
        self.outcomes += outcomes
        self.counts.append(counts)

    def total(self, name: str) -> float:
        return float(sum(getattr(one, name) for one in self.counts))


def scheduler(stage: Stage, *, cap: int, call: Any = None, **rules: Any) -> Scheduler:
    pace = rules.pop("pace", None)
    clients = rules.pop("clients", None)
    chosen = {
        "timeout_s": TIMEOUT_S,
        "transient": lambda error: isinstance(error, (Passing, CallTimedOut)),
        "backoff": Backoff(first_s=0.1, most_s=0.4, chance=lambda: 0.5),
        "give_at": 3,
        **rules,
    }
    loop = asyncio.get_running_loop()
    return Scheduler(
        call or stage.remote.call,
        limiter=Fixed(cap),
        cap=cap,
        give=stage.give,
        ended=stage.end.set_result,
        rules=Rules(**chosen),
        clients=clients,
        pace=pace,
        clock=loop.time,
        cpu=lambda: 0.0,
    )


async def play(rows: list[Row], *, cap: int, pauses: list[float] = [], **rules: Any) -> Stage:  # noqa: B006
    """Admit rows in slices of two with pauses between; return the stage once all has ended."""
    stage = Stage(Remote())
    made = scheduler(stage, cap=cap, **rules)
    for number in range(0, len(rows), 2):
        part = rows[number : number + 2]
        made.admit(part, [row.key for row in part])
        if number // 2 < len(pauses):
            await asyncio.sleep(pauses[number // 2])
        if stage.end.done():
            break
    made.finish()
    await stage.end
    await made.close()
    return stage


ends = st.sampled_from(["answers", "answers", "answers", "fails in passing", "fails", "hangs"])
stories = st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.3, 0.9]), ends), min_size=1, max_size=4)
keys = st.one_of(st.none(), st.integers(0, 4))


@st.composite
def rows_of(draw: st.DrawFn) -> list[Row]:
    drawn = draw(st.lists(st.tuples(keys, stories), max_size=30))
    return [Row(number, key, tuple(story)) for number, (key, story) in enumerate(drawn)]


pauses = st.lists(st.sampled_from([0.0, 0.05, 2.0]), max_size=15)


@settings(deadline=None, max_examples=examples(300))
@given(
    rows=rows_of(),
    cap=st.integers(1, 6),
    pauses=pauses,
    retries=st.integers(0, 3),
    ordered=st.booleans(),
)
def test_every_row_has_one_outcome_and_no_key_is_called_twice_at_once(
    rows: list[Row], cap: int, pauses: list[float], retries: int, ordered: bool
) -> None:
    stage = run(
        play(rows, cap=cap, pauses=pauses, retries=retries, ordered=ordered, dead_letters=True)
    )
    assert stage.end.result() is None
    assert sorted(one.row.number for one in stage.outcomes) == [row.number for row in rows]
    if ordered:
        assert [one.row.number for one in stage.outcomes] == [row.number for row in rows]
    assert stage.remote.most <= cap
    assert stage.remote.inversions == []
    begun: dict[Hashable, list[int]] = defaultdict(list)
    for row in stage.remote.begun:
        begun[row.key].append(row.number)
    assert all(numbers == sorted(numbers) for key, numbers in begun.items() if key is not None)
    for one in stage.outcomes:
        expected = _ends(one.row, retries)
        assert (one.result, type(one.error)) == expected
    assert stage.total("calls") == sum(stage.remote.tries.values())
    assert stage.total("retries") == stage.total("calls") - len(rows)
    assert stage.total("dead_letters") == sum(one.error is not None for one in stage.outcomes)


def _ends(row: Row, retries: int) -> tuple[int | None, type[Any]]:
    """Return the result and the type of the error that a row's story must come to."""
    for tried in range(retries + 1):
        end = row.part(tried)[1]
        if end == "answers":
            return row.number, type(None)
        if end == "fails":
            return None, Final
    return None, CallTimedOut if end == "hangs" else Passing


@settings(deadline=None, max_examples=examples(200))
@given(rows=rows_of(), cap=st.integers(1, 6), pauses=pauses)
def test_without_dead_letters_the_first_row_given_up_ends_all(
    rows: list[Row], cap: int, pauses: list[float]
) -> None:
    stage = run(play(rows, cap=cap, pauses=pauses, retries=1))
    doomed = [row for row in rows if _ends(row, 1)[0] is None]
    assert (stage.end.result() is not None) == bool(doomed)
    assert stage.remote.at_once == 0
    numbers = [one.row.number for one in stage.outcomes]
    assert len(numbers) == len(set(numbers))
    assert all(one.error is None for one in stage.outcomes)


@settings(deadline=None, max_examples=examples(200))
@given(rows=rows_of(), cap=st.integers(1, 6), after=st.floats(0, 3))
def test_a_close_at_any_moment_leaves_no_call_running_and_gives_nothing_more(
    rows: list[Row], cap: int, after: float
) -> None:
    async def story() -> None:
        stage = Stage(Remote())
        made = scheduler(stage, cap=cap, dead_letters=True, retries=2)
        made.admit(rows, [row.key for row in rows])
        await asyncio.sleep(after)
        given = len(stage.outcomes)
        began = asyncio.get_running_loop().time()
        await made.close()
        assert asyncio.get_running_loop().time() == began, "cancelled calls end at once"
        assert stage.remote.at_once == 0
        await asyncio.sleep(20)
        assert len(stage.outcomes) == given
        assert stage.remote.at_once == 0

    run(story())


def test_distinct_keys_are_called_side_by_side() -> None:
    rows = [Row(number, number % 4, ((0.5, "answers"),)) for number in range(8)]

    async def story() -> tuple[Stage, float]:
        began = asyncio.get_running_loop().time()
        stage = await play(rows, cap=16)
        return stage, asyncio.get_running_loop().time() - began

    stage, took = run(story())
    assert stage.remote.most == 4  # four keys, whatever the limit
    assert took == pytest.approx(1.0)
    assert [one.waited_ms for one in stage.outcomes[4:]] == [pytest.approx(500)] * 4


def test_a_call_that_hangs_is_cancelled_at_its_time_out() -> None:
    stage = run(play([Row(0, "a", ((0, "hangs"),))], cap=1, retries=0, dead_letters=True))
    (one,) = stage.outcomes
    assert isinstance(one.error, CallTimedOut)
    assert one.latency_ms == pytest.approx(1000)
    assert stage.total("timeouts") == 1


def test_a_call_that_swallows_its_cancellation_fails_the_batch_by_name() -> None:
    async def deaf(row: Row, client: Any) -> None:
        for _ in range(100):
            try:
                await asyncio.sleep(1e6)
            except asyncio.CancelledError:
                continue

    async def story() -> BaseException | None:
        stage = Stage(Remote())
        made = scheduler(stage, cap=1, call=deaf, retries=0, dead_letters=True)
        made.admit([Row(0, "a")], ["a"])
        made.finish()
        error = await stage.end
        for task in asyncio.all_tasks() - {asyncio.current_task()}:  # let the deaf one go
            for _ in range(101):
                task.cancel()
                await asyncio.sleep(0)
        return error

    error = run(story())
    assert isinstance(error, CallStuck)
    assert "CancelledError" in str(error)


def test_a_result_returned_in_spite_of_the_cancellation_counts() -> None:
    async def late(row: Row, client: Any) -> str:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            return "late"
        return "never"

    async def story() -> Stage:
        stage = Stage(Remote())
        made = scheduler(stage, cap=1, call=late, retries=0)
        made.admit([Row(0, "a"), Row(1, "a")], ["a", "a"])
        made.finish()
        assert await stage.end is None
        return stage

    assert [one.result for one in run(story()).outcomes] == ["late", "late"]


def test_an_error_names_the_row_and_how_often_it_was_tried() -> None:
    stage = run(play([Row(0, "a"), Row(1, "b", ((0, "fails in passing"),))], cap=1, retries=2))
    error = stage.end.result()
    assert isinstance(error, Passing)
    assert error.__notes__ == ["headgate_async: row number 1 failed after 3 tries"]


def test_a_function_that_cancels_itself_is_an_error_and_no_silent_end() -> None:
    async def odd(row: Row, client: Any) -> None:
        raise asyncio.CancelledError

    async def story() -> BaseException | None:
        stage = Stage(Remote())
        made = scheduler(stage, cap=1, call=odd)
        made.admit([Row(0, "a")], ["a"])
        return await stage.end

    error = run(story())
    assert isinstance(error, AsyncMapError)
    assert "without being cancelled" in str(error)


def test_calls_begin_no_faster_than_the_pace_asked_for() -> None:
    rows = [Row(number, None) for number in range(50)]
    began: list[float] = []

    async def story() -> None:
        stage = Stage(Remote())

        async def call(row: Row, client: Any) -> None:
            began.append(asyncio.get_running_loop().time())

        made = scheduler(stage, cap=8, call=call, pace=Pace(10.0))
        made.admit(rows, [None] * 50)
        made.finish()
        await stage.end
        assert stage.total("held_by_pace") >= 48

    run(story())
    spans = [after - before for before, after in zip(began, began[10:], strict=False)]
    assert min(spans) >= 0.99, "no ten calls within less than a second"


def test_a_function_that_never_waits_lets_the_loop_live() -> None:
    async def story() -> int:
        stage = Stage(Remote())
        made = scheduler(stage, cap=1)
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while not stage.end.done():
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        made.admit([Row(number, None) for number in range(1000)], [None] * 1000)
        made.finish()
        await stage.end
        await ticking
        return ticks

    assert run(story()) >= 10


def test_what_holds_the_calls_back_is_counted() -> None:
    slow = ((0.5, "answers"),)
    limit = run(play([Row(n, n, slow) for n in range(20)], cap=2))
    assert limit.total("held_by_limit") >= 16
    keys_ = run(play([Row(n, "hot", slow) for n in range(20)], cap=8))
    assert keys_.total("held_by_keys") >= 18
    assert keys_.total("busy_ms") == pytest.approx(10_000)
