"""A threshold is crossed, holds and clears by its figure's mean, and says what it does not know."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.alerts.thresholds import (
    MINUTE,
    Crossing,
    Point,
    judge,
    number,
    p95,
    replay,
)
from queries.domain.definitions.spec import Threshold
from queries.domain.validation.thresholds import (
    read_threshold_lines,
    threshold_lines,
    threshold_problems,
)

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
BEHIND = Threshold(figure="records_behind", value=1_000_000)


def points(*values: float | None, until: datetime = NOW) -> list[Point]:
    """Return one point a minute up to `until`; None leaves its minute out."""
    first = until - len(values) * MINUTE
    return [
        Point(first + index * MINUTE, value)
        for index, value in enumerate(values)
        if value is not None
    ]


def state(limit: Threshold, *values: float | None, crossed: bool = False) -> Crossing:
    return judge(limit, points(*values), now=NOW, crossed=crossed).state


def test_the_mean_over_the_window_counts_and_not_one_minute() -> None:
    assert state(BEHIND, *[100] * 9, 8_000_000) is Crossing.FINE
    assert state(BEHIND, *[1_200_000] * 10) is Crossing.CROSSED
    assert state(BEHIND, *[9_000_000] * 20, *[0] * 10) is Crossing.FINE  # before the window


def test_the_sentence_has_the_numbers() -> None:
    judged = judge(BEHIND, points(*[1_200_000] * 10), now=NOW, crossed=False)
    assert judged.text == ("1.2 M records behind on average over 10 min; the threshold is 1 M.")


@pytest.mark.parametrize(
    ("value", "crossed", "expected"),
    [
        (950_000, False, Crossing.FINE),
        (950_000, True, Crossing.CROSSED),  # within the margin: it does not flap
        (890_000, True, Crossing.FINE),
        (1_000_000, False, Crossing.FINE),
    ],
)
def test_a_crossed_threshold_clears_only_beyond_a_margin(
    value: float, crossed: bool, expected: Crossing
) -> None:
    assert state(BEHIND, *[value] * 10, crossed=crossed) is expected


def test_a_rate_is_crossed_from_below() -> None:
    rate = Threshold(figure="rows_per_second_below", value=100)
    assert state(rate, *[99] * 10) is Crossing.CROSSED
    assert state(rate, *[105] * 10) is Crossing.FINE
    assert state(rate, *[105] * 10, crossed=True) is Crossing.CROSSED
    assert state(rate, *[111] * 10, crossed=True) is Crossing.FINE


def test_late_rows_are_summed() -> None:
    late = Threshold(figure="late_rows", value=50)
    judged = judge(late, points(*[6] * 10), now=NOW, crossed=False)
    assert judged.state is Crossing.CROSSED
    assert judged.text == "60 late rows in 10 min; the threshold is 50."


@pytest.mark.parametrize(
    "values",
    [[], [None] * 6 + [9e9] * 4, [9e9] * 6 + [None] * 4],
    ids=["none", "too few", "too old"],
)
def test_what_is_not_known_is_neither_crossed_nor_fine(values: list[float | None]) -> None:
    judged = judge(BEHIND, points(*values), now=NOW, crossed=True)
    assert (judged.state, judged.value) == (Crossing.UNKNOWN, None)
    assert judged.text.startswith("Not enough data")


def test_one_batch_in_the_window_is_enough_for_its_time_and_batches_count_equally() -> None:
    slow = Threshold(figure="batch_seconds", value=5)
    assert state(slow, 9, *[None] * 9) is Crossing.CROSSED
    mixed = [Point(NOW - 2 * MINUTE, 1, weight=9), Point(NOW - MINUTE, 11, weight=1)]
    assert judge(slow, mixed, now=NOW, crossed=False).value == 2


def test_a_factor_is_of_last_weeks_p95_and_unknown_without_batches() -> None:
    slow = Threshold(figure="batch_seconds", factor=2)
    judged = judge(slow, points(*[9] * 10), now=NOW, crossed=False, usual=4)
    assert (judged.state, judged.limit) == (Crossing.CROSSED, 8)
    assert judged.text.endswith("the threshold is 8 (2 × last week's p95).")
    unknown = judge(slow, points(*[9] * 10), now=NOW, crossed=False)
    assert (unknown.state, unknown.limit) == (Crossing.UNKNOWN, None)
    assert "the threshold is unknown" in unknown.text


def test_p95_is_weighted() -> None:
    assert p95([]) is None
    assert p95([(1, 0)]) is None
    assert p95([(1, 95), (50, 5)]) == 1
    assert p95([(50, 6), (1, 94)]) == 50


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0, "0"), (2.5, "2.5"), (123.4, "123"), (9_999, "9,999"), (12_345, "12.3 k")],
        *[(999_999, "1 M"), (1_234_567, "1.23 M"), (5e9, "5 G"), (3e15, "3,000 T")],
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_a_replay_counts_crossings_and_names_the_times_without_figures() -> None:
    since = NOW - timedelta(days=1)
    low, high = [0.0] * 60, [2e6] * 60
    values = [*low, *high, *low, *high, *low]
    found = replay(BEHIND, points(*values), since=since, until=NOW)
    assert len(found.crossed_at) == 2
    assert found.crossed_at[0] < found.crossed_at[1]
    assert found.known_minutes < found.minutes == 1440
    assert found.unknown[0].since == since
    assert found.text.startswith("There are figures for only 5 h of the last 1 days; in these, it ")
    assert "would have fired 2 times (first 2026-03-02" in found.text
    assert "Longest times without figures: 03-01 12:00" in found.text
    most = replay(BEHIND, points(*values), since=NOW - timedelta(minutes=400), until=NOW)
    assert most.text.startswith("It would have fired 2 times in the last 0.278 days (first 2026")
    assert "There are no figures for 26 % of that time; longest: 03-02 05:20" in most.text


def test_a_replay_of_a_few_minutes_is_no_statement_about_a_week() -> None:
    since = NOW - timedelta(days=7)
    found = replay(BEHIND, points(*[3e6] * 30), since=since, until=NOW)
    assert "would have fired once in the last" not in found.text
    assert "100 %" not in found.text
    assert found.text.startswith(f"There are figures for only {found.known_minutes} min of")


def test_a_replay_without_figures_says_so() -> None:
    found = replay(BEHIND, [], since=NOW - timedelta(days=7), until=NOW)
    assert found.crossed_at == ()
    assert found.text.startswith("There are no figures for the last 7 days")


def test_a_replay_of_a_quiet_time_and_of_one_crossing() -> None:
    since = NOW - timedelta(hours=2)
    quiet = replay(BEHIND, points(*[0] * 140), since=since, until=NOW)
    assert quiet.text == "It would not have fired in the last 0.0833 days."
    once = replay(BEHIND, points(*[0] * 80, *[3e6] * 60), since=since, until=NOW)
    assert once.text.startswith("It would have fired once in")


def test_a_short_dip_is_the_same_crossing() -> None:
    limit = Threshold(figure="records_behind", value=100, window_minutes=5)
    values = [*[500] * 20, *[0] * 6, *[500] * 20]
    since = NOW - len(values) * MINUTE
    assert len(replay(limit, points(*values), since=since, until=NOW).crossed_at) == 1


@given(
    st.lists(st.one_of(st.none(), st.floats(0, 200)), min_size=1, max_size=120),
    st.sampled_from(["records_behind", "rows_per_second_below", "late_rows", "state_rows"]),
)
def test_a_replay_agrees_with_judging_each_minute(values: list[float | None], figure: str) -> None:
    limit = Threshold.model_validate({"figure": figure, "value": 100, "window_minutes": 5})
    since, series = NOW - len(values) * MINUTE, points(*values)
    crossed, opened, known, ended = False, [], 0, None
    for minute in range(len(values)):
        now = since + minute * MINUTE
        found = judge(limit, series, now=now, crossed=crossed).state
        if found is Crossing.UNKNOWN:
            continue
        known += 1
        if found is Crossing.CROSSED and not crossed:
            if ended is None or now - ended > timedelta(minutes=5):
                opened.append(now)
        elif crossed and found is Crossing.FINE:
            ended = now
        crossed = found is Crossing.CROSSED
    again = replay(limit, series, since=since, until=NOW)
    assert (list(again.crossed_at), again.known_minutes) == (opened, known)


@pytest.mark.parametrize(
    ("thresholds", "field"),
    [
        ([{"figure": "late_rows"}], "thresholds.0.value"),
        ([{"figure": "late_rows", "value": 1, "factor": 2}], "thresholds.0.factor"),
        ([{"figure": "batch_seconds", "value": 1, "factor": 2}], "thresholds.0.factor"),
        ([{"figure": "late_rows", "value": 1}] * 2, "thresholds.1.figure"),
    ],
)
def test_a_threshold_without_one_limit_is_refused(
    thresholds: list[dict[str, object]], field: str
) -> None:
    found = threshold_problems([Threshold.model_validate(one) for one in thresholds])
    assert [one.field for one in found] == [field]


def test_sound_thresholds_are_taken() -> None:
    assert threshold_problems([BEHIND, Threshold(figure="batch_seconds", factor=2)]) == []


def test_lines_hold_what_a_rules_page_edits() -> None:
    both = [BEHIND, Threshold(figure="batch_seconds", factor=2.5, window_minutes=30)]
    text = threshold_lines([one.model_dump() for one in both])
    assert text == "records_behind 1000000 10\nbatch_seconds x2.5 30"
    assert [Threshold.model_validate(one) for one in read_threshold_lines(text)] == both
    assert read_threshold_lines("late_rows  5\n\n moon") == [
        {"figure": "late_rows", "value": "5"},
        {"figure": "moon", "value": ""},
    ]
