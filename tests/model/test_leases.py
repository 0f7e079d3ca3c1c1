"""At random: whatever workers and clocks do, one worker at a time holds a row."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from listeners.loops.slices import Lease, LeaseLost, Leases
from listeners.models import Cursor

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LEASES = Leases(timedelta(seconds=60))
ROW = "model"

workers = st.integers(0, 2)
acts = st.lists(
    st.tuples(st.sampled_from(["take", "renew", "release"]), workers)
    | st.tuples(st.just("pass"), st.integers(0, 90))
    | st.tuples(st.just("set back"), st.integers(0, 400)),
    max_size=40,
)


class Model:
    """What should be true of one row: the holder, and when its lease ends."""

    def __init__(self) -> None:
        Cursor.objects.update_or_create(name=ROW, defaults={"leased_until": None})
        self.now = NOON
        self.holder: int | None = None
        self.until = NOON
        self.leases: dict[int, Lease] = {}

    def is_free(self) -> bool:
        ahead = self.until - self.now
        held = timedelta(0) < ahead <= timedelta(seconds=120)
        return self.holder is None or not held

    def take(self, worker: int) -> None:
        lease = LEASES.take(Cursor.objects.all(), ROW, now=self.now)
        assert (lease is not None) == self.is_free()
        if lease is not None:
            self.holder, self.until = worker, self.now + LEASES.length
            self.leases[worker] = lease

    def renew(self, worker: int) -> None:
        if worker not in self.leases:
            return
        if self.holder == worker:
            self.until = self.leases[worker].until = self.leases[worker].renew(self.now)
            assert self.until == self.now + LEASES.length
        else:
            with pytest.raises(LeaseLost):
                self.leases[worker].renew(self.now)

    def release(self, worker: int) -> None:
        if worker not in self.leases:
            return
        assert self.leases.pop(worker).release(left_rows=worker) == (self.holder == worker)
        if self.holder == worker:
            self.holder = None


@pytest.mark.django_db
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50
)
@given(acts)
def test_one_worker_at_a_time_holds_a_row(steps: list[tuple[str, int]]) -> None:
    model = Model()
    for kind, of in steps:
        # Two clocks never read the same instant: a lease is known by the end that was written.
        model.now += timedelta(microseconds=1)
        if kind == "pass":
            model.now += timedelta(seconds=of)
        elif kind == "set back":
            model.now -= timedelta(seconds=of)
        else:
            act: Any = getattr(model, kind)
            act(of)
        row = Cursor.objects.get(name=ROW)
        assert row.leased_until == (model.until if model.holder is not None else None)
