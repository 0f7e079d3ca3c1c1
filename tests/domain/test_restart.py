"""The ladder of restarts."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from queries.domain import restart
from queries.domain.failures import crashes
from queries.domain.protocol import LEAVE_S
from queries.domain.restart import JITTER, Earlier, RestartPolicy
from queries.domain.supervision.health import verdicts as health
from queries.domain.supervision.observation import HOLDS_SLOT

POLICY = RestartPolicy()
RECORD = Path(__file__).parents[2] / "docs/decisions/0005-constants-of-supervision.md"
NOW = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("n", "middle"),
    [(1, 0), (2, 5), (3, 10), (4, 20), (5, 40), (8, 300), (1000, 300), (10**9, 300)],
)
def test_the_nth_delay_doubles_up_to_five_minutes(n: int, middle: float) -> None:
    seconds = restart.delay(POLICY, n, key="query:1").total_seconds()
    assert middle * 0.8 <= seconds <= middle * 1.2


@given(st.integers(0, 10**6), st.text(max_size=20))
def test_deciding_twice_waits_alike(n: int, key: str) -> None:
    assert restart.delay(POLICY, n, key=key) == restart.delay(POLICY, n, key=key)
    assert restart.delay(POLICY, n, key=key) <= timedelta(seconds=360)


def test_many_that_died_together_do_not_return_together() -> None:
    waits = {restart.delay(POLICY, 3, key=f"query:{n}") for n in range(20)}
    assert len(waits) > 15


@pytest.mark.parametrize(
    ("proven", "healthy"), [(None, False), (0, False), (599, False), (600, True), (9000, True)]
)
def test_ten_minutes_of_health_forget_failures(proven: int | None, healthy: bool) -> None:
    at = None if proven is None else NOW - timedelta(seconds=proven)
    assert restart.healthy(POLICY, proven_at=at, now=NOW) is healthy


@pytest.mark.parametrize(
    ("recent", "poisoned"),
    [
        ([], False),
        ([Earlier("f", 4)], False),
        ([Earlier("f", 4), Earlier("f", 4)], True),
        ([Earlier("f", 4), Earlier("g", 4), Earlier("f", 4)], False),
        ([Earlier("f", 4), Earlier("f", 3)], False),
        ([Earlier("f", 4), Earlier("f", 4), Earlier("f", 4)], True),
    ],
)
def test_poison_is_the_same_error_on_the_same_batch_three_times(
    recent: list[Earlier], poisoned: bool
) -> None:
    found = restart.poisoned(POLICY, fingerprint="f", batch=4, recent=recent)
    assert found is poisoned


@pytest.mark.parametrize(
    "recent",
    [
        [],
        [Earlier("f", None), Earlier("f", None)],
        [Earlier("f", None), Earlier("f", None), Earlier("f", None), Earlier("f", None)],
        [Earlier("f", 4), Earlier("f", 4)],
    ],
)
def test_failures_without_a_known_batch_are_not_on_the_same_batch(
    recent: list[Earlier],
) -> None:
    assert not restart.poisoned(POLICY, fingerprint="f", batch=None, recent=recent)
    once = POLICY.model_copy(update={"poison_limit": 1})
    assert not restart.poisoned(once, fingerprint="f", batch=None, recent=recent)


def test_an_unknown_batch_between_ends_the_streak() -> None:
    recent = [Earlier("f", 4), Earlier("f", None), Earlier("f", 4)]
    assert not restart.poisoned(POLICY, fingerprint="f", batch=4, recent=recent)


def test_the_decision_record_gives_the_constants_that_hold() -> None:
    rows = dict(re.findall(r"^\| ([^|]+?)\*? \| ([^|]+?) \|", RECORD.read_text(), re.MULTILINE))
    least, most = POLICY.base_delay_s, POLICY.max_delay_s
    assert rows["later restarts"] == (
        f"{least:g} s × 2^(n−2), at most {most:g} s, ± {JITTER * 100:g} %"
    )
    assert rows["healthy after"] == f"{POLICY.healthy_after_s / 60:g} min with a new commit"
    assert rows["poison limit"].startswith(f"{POLICY.poison_limit} times ")
    assert rows["retry probe of a query on hold"] == f"{POLICY.probe_every_s / 60:g} min"
    window = f"{crashes.WINDOW.total_seconds() / 60:g} min"
    assert rows["crash loop"].startswith(f"{crashes.FAILURES} failures within {window}")
    assert rows["STALLED"].startswith(
        f"{health.TRIGGER_FACTOR:g} × trigger + "
        f"max({health.P99_FACTOR:g} × p99 of a batch, {health.STALL_FLOOR_S:g} s)"
    )
    assert rows["a start without progress"] == f"{settings.START_DEADLINE_S} s"
    assert rows["a start in all"] == f"{settings.START_MAX_S} s"
    assert rows["graceful stop"].startswith(f"{settings.STOP_DEADLINE_S} s, ")
    assert rows["leaving"].startswith(f"{LEAVE_S} s to SIGTERM, {LEAVE_S} s more")
    assert rows["drivers starting at once"].startswith("half the host's cores")
    assert rows["a start holds its place"] == f"at most {HOLDS_SLOT.total_seconds():g} s"
