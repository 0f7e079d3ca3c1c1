"""Whoever should hears of an incident once a step, and of its end if they heard of it."""

from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.alerts.forms import IncidentKind, NotificationStep, Selector, Severity
from queries.domain.alerts.routing import (
    DeliveryPlan,
    QuietHours,
    RoutedIncident,
    RoutingRule,
    Telling,
    in_force,
    plan,
)

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)  # a Monday
HOUR = timedelta(hours=1)
INCIDENT = RoutedIncident(
    kind=IncidentKind.FAILED,
    severity=Severity.CRITICAL,
    application="flights",
    open=True,
    opened_at=NOW,
    labels={"team": "a"},
)
WARNING = replace(INCIDENT, severity=Severity.WARNING)
ALL = RoutingRule("all", Selector(), (1, 2))
NIGHT = QuietHours(ZoneInfo("Europe/Berlin"), time(22), time(7))


def told(
    incident: RoutedIncident, *rules: RoutingRule, heard: Any = (), after: timedelta = HOUR * 0
) -> DeliveryPlan:
    return plan(incident, rules, list(heard), now=NOW + after)


def opened(*channels: int) -> tuple[Telling, ...]:
    return tuple(Telling(NotificationStep.OPENED, channel) for channel in channels)


def test_each_channel_of_the_rules_that_match_hears_of_it_once() -> None:
    other = RoutingRule("others", Selector(labels={"team": "b"}), (3,))
    again = RoutingRule("again", Selector(labels={"team": "a"}), (2, 4))
    assert told(INCIDENT, ALL, other, again) == DeliveryPlan(opened(1, 2, 4))
    assert told(INCIDENT, ALL, heard=opened(1, 2)) == DeliveryPlan()


def test_without_a_rule_every_channel_hears_of_everything() -> None:
    assert in_force([ALL], [7]) == [ALL]
    assert told(INCIDENT, *in_force([], [7, 8])) == DeliveryPlan(opened(7, 8))


def test_its_end_is_told_to_those_who_heard_of_it_and_to_nobody_else() -> None:
    closed = replace(INCIDENT, open=False)
    heard = [
        *opened(1),
        Telling(NotificationStep.ESCALATED, 5),
        Telling(NotificationStep.REMINDER, 1, 1),
    ]
    ends = (Telling(NotificationStep.RESOLVED, 1), Telling(NotificationStep.RESOLVED, 5))
    assert told(closed, ALL, heard=heard) == DeliveryPlan(ends)
    assert told(closed, ALL, heard=[*heard, *ends]) == DeliveryPlan()
    assert told(closed, ALL) == DeliveryPlan()


def test_it_is_escalated_when_nobody_has_taken_it() -> None:
    rule = replace(ALL, escalate_after=HOUR, escalate_to=(9,))
    assert told(INCIDENT, rule) == DeliveryPlan(opened(1, 2), NOW + HOUR)
    heard = opened(1, 2)
    assert told(INCIDENT, rule, heard=heard, after=HOUR) == DeliveryPlan(
        (Telling(NotificationStep.ESCALATED, 9),)
    )
    taken = replace(INCIDENT, acknowledged=True)
    assert told(taken, rule, heard=heard, after=HOUR) == DeliveryPlan()


def test_an_acknowledgement_that_has_run_out_is_none() -> None:
    rule = replace(ALL, escalate_after=HOUR, escalate_to=(9,))
    taken = replace(INCIDENT, acknowledged=True, acknowledged_until=NOW + 2 * HOUR)
    heard = opened(1, 2)
    assert told(taken, rule, heard=heard, after=HOUR) == DeliveryPlan((), NOW + 2 * HOUR)
    assert told(taken, rule, heard=heard, after=2 * HOUR).tellings == (
        Telling(NotificationStep.ESCALATED, 9),
    )


def test_reminders_come_one_an_interval_and_none_is_made_up_for() -> None:
    rule = replace(ALL, channels=(1,), remind_every=HOUR)
    assert told(INCIDENT, rule, heard=opened(1)) == DeliveryPlan((), NOW + HOUR)
    late = told(INCIDENT, rule, heard=opened(1), after=HOUR * 3.5)
    assert late == DeliveryPlan((Telling(NotificationStep.REMINDER, 1, 3),), NOW + 4 * HOUR)
    done = [*opened(1), Telling(NotificationStep.REMINDER, 1, 3)]
    assert told(INCIDENT, rule, heard=done, after=HOUR * 3.6) == DeliveryPlan((), NOW + 4 * HOUR)


def test_those_it_was_escalated_to_are_reminded_too() -> None:
    rule = RoutingRule(
        "a", Selector(), (1,), escalate_after=HOUR, escalate_to=(9,), remind_every=2 * HOUR
    )
    due = told(INCIDENT, rule, heard=opened(1), after=2 * HOUR).tellings
    assert set(due) == {
        Telling(NotificationStep.ESCALATED, 9),
        Telling(NotificationStep.REMINDER, 1, 1),
        Telling(NotificationStep.REMINDER, 9, 1),
    }


def test_while_it_is_snoozed_nobody_is_told() -> None:
    snoozed = replace(INCIDENT, snoozed_until=NOW + HOUR)
    assert told(snoozed, ALL) == DeliveryPlan((), NOW + HOUR)
    assert told(snoozed, ALL, after=HOUR) == DeliveryPlan(opened(1, 2))


def test_in_quiet_hours_warnings_wait_and_what_is_critical_does_not() -> None:
    rule = replace(ALL, quiet=NIGHT)
    assert told(WARNING, rule) == DeliveryPlan((), datetime(2026, 1, 5, 6, 0, tzinfo=UTC))
    assert told(WARNING, rule, after=3 * HOUR) == DeliveryPlan(opened(1, 2))
    assert told(INCIDENT, rule) == DeliveryPlan(opened(1, 2))


@pytest.mark.parametrize(
    ("at", "ends"),
    [
        ("2026-01-05T21:00", "2026-01-06T06:00"),
        ("2026-01-05T20:59", None),
        ("2026-01-05T06:00", None),
        ("2026-01-05T05:59", "2026-01-05T06:00"),
        ("2026-03-29T04:00", "2026-03-29T05:00"),  # summer time has begun
    ],
)
def test_quiet_hours_are_those_of_their_time_zone(at: str, ends: str | None) -> None:
    now = datetime.fromisoformat(f"{at}+00:00")
    assert NIGHT.ends(now) == (datetime.fromisoformat(f"{ends}+00:00") if ends else None)


def test_quiet_hours_of_some_days_begin_on_those_days() -> None:
    weekend = QuietHours(ZoneInfo("UTC"), time(9), time(17), frozenset({5, 6}))
    assert weekend.ends(datetime(2026, 1, 5, 12, tzinfo=UTC)) is None
    sunday = datetime(2026, 1, 4, 12, tzinfo=UTC)
    assert weekend.ends(sunday) == datetime(2026, 1, 4, 17, tzinfo=UTC)


RULES = st.lists(
    st.builds(
        RoutingRule,
        name=st.just("r"),
        selector=st.sampled_from([Selector(), Selector(labels={"team": "b"})]),
        channels=st.sampled_from([(1,), (1, 2), ()]),
        quiet=st.sampled_from([None, NIGHT]),
        escalate_after=st.sampled_from([None, HOUR / 2]),
        escalate_to=st.sampled_from([(), (2, 3)]),
        remind_every=st.sampled_from([None, HOUR, 6 * HOUR]),
    ),
    max_size=3,
)


@given(
    st.sampled_from([INCIDENT, WARNING]),
    RULES,
    st.lists(st.integers(0, 200), min_size=1, max_size=12),
    st.integers(0, 12),
)
def test_nothing_is_told_twice_and_all_who_heard_hear_of_the_end(
    incident: RoutedIncident, rules: list[RoutingRule], pauses: list[int], closed_after: int
) -> None:
    heard: list[Telling] = []
    now = NOW
    for look, minutes in enumerate([*pauses, 0]):
        now += timedelta(minutes=minutes)
        seen = replace(incident, open=look < min(closed_after, len(pauses)))
        found = plan(seen, rules, heard, now=now)
        assert not set(found.tellings) & set(heard)
        assert len(set(found.tellings)) == len(found.tellings)
        assert found.again_at is None or found.again_at > now
        heard += found.tellings
    knew = {one.channel for one in heard if one.step is not NotificationStep.RESOLVED}
    assert {one.channel for one in heard if one.step is NotificationStep.RESOLVED} == knew


def test_a_rule_hears_of_a_stopped_query_within_its_own_time_or_not_at_all() -> None:
    gone = NOW + timedelta(hours=30)
    told = RoutedIncident(
        kind=IncidentKind.AT_RISK_STOPPED,
        severity=Severity.WARNING,
        application="flights",
        open=True,
        opened_at=NOW,
        gone_at=gone,
    )
    late = RoutingRule("late", Selector(), (1,))
    early = RoutingRule("early", Selector(stopped_within_hours=48), (2,))
    never = RoutingRule("never", Selector(stopped=False), (3,))
    found = plan(told, (late, early, never), (), now=NOW)
    assert [one.channel for one in found.tellings] == [2]
    assert found.again_at == gone - timedelta(hours=24)
    then = plan(told, (late, never), (), now=gone - timedelta(hours=24))
    assert [one.channel for one in then.tellings] == [1]
