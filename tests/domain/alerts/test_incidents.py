"""Troubles that are one are told once, and an incident lasts while its trouble does."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from queries.domain.alerts.forms import IncidentKind as Kind
from queries.domain.alerts.incidents import (
    NAMED,
    QUIET_BEFORE_CLOSING,
    AlertCondition,
    AlertSubject,
    IncidentAction,
    RecordedIncident,
    changes,
    grouped,
    names_of,
    of_disk,
    of_query,
)

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
FLIGHTS = AlertSubject(1, "flights")


def trouble(kind: Kind, query: int = 1, fingerprint: str = "", **more: object) -> AlertCondition:
    known: dict[str, object] = {
        "title": f"q{query}: {kind.label.lower()}",
        "queries": (AlertSubject(query, f"q{query}"),),
        "application": FLIGHTS,
        "labels": {"team": "a"},
        "group": 7,
        **more,
    }
    return AlertCondition(kind, fingerprint or of_query(kind, query), **known)  # type: ignore[arg-type]


def away(query: int, **more: object) -> AlertCondition:
    return trouble(
        Kind.SOURCE_UNREACHABLE, query, "source:k1", title="Source k1 unreachable", **more
    )


def known(of: AlertCondition, **more: object) -> RecordedIncident:
    base = RecordedIncident(
        id=1,
        fingerprint=of.fingerprint,
        open=True,
        title=of.title,
        detail=of.detail,
        affected=len(of.queries),
        seen_at=NOW - timedelta(seconds=5),
    )
    return replace(base, **more)  # type: ignore[arg-type]


def acts(
    *found: RecordedIncident, now: list[AlertCondition], at: datetime = NOW
) -> list[IncidentAction]:
    return [change.act for change in changes(found, now, now=at)]


# --- which troubles are one -----------------------------------------------------------------


def test_a_thousand_queries_of_one_source_are_one_trouble() -> None:
    (one,) = grouped([away(number) for number in range(1000)])
    assert one.title == "Source k1 unreachable: 1,000 queries"
    assert len(one.queries) == 1000
    assert one.query is None
    assert len(names_of(one)) == NAMED
    assert one.group is None


def test_what_its_queries_differ_in_is_not_said_of_a_trouble_of_several() -> None:
    other = AlertSubject(2, "other")
    (one,) = grouped([away(1), away(2, application=other, labels={"team": "b", "x": "y"})])
    assert one.application is None
    assert one.labels == {}
    (same,) = grouped([away(1), away(2)])
    assert same.application == FLIGHTS
    assert same.labels == {"team": "a"}


def test_one_loss_is_one_trouble_told_by_what_is_most_certain() -> None:
    risk = trouble(Kind.AT_RISK, detail="150 offsets were deleted.")
    lost = trouble(Kind.RECORDS_LOST, detail="150 records were never read.")
    failed = trouble(Kind.FAILED, fingerprint=of_query(Kind.FAILED, 1, loses=True), detail="Lost")
    other = trouble(Kind.FAILED, 2)
    (one, two) = grouped([risk, lost, failed, other])
    assert (one.kind, one.group) == (Kind.FAILED, 7)
    assert one.detail == "Lost. 150 offsets were deleted. 150 records were never read."
    assert (two.kind, two.detail) == (Kind.FAILED, "")


def test_a_full_file_system_is_told_once_and_to_those_of_its_queries() -> None:
    seen = AlertCondition(
        Kind.DISK, of_disk("a", "/data"), "Disk full: /data on a", "3 MB are free."
    )
    failing = [
        replace(trouble(Kind.DISK, query, seen.fingerprint), title=seen.title) for query in (1, 2)
    ]
    (one,) = grouped([seen, *failing, trouble(Kind.CRASH_LOOP, 1)])
    assert one.title == "Disk full: /data on a: 2 queries"
    assert one.labels == {"team": "a"}
    assert of_disk("a", "") == Kind.DISK


def test_signs_of_a_source_that_is_away_are_not_told_beside_it() -> None:
    seen = [
        away(1),
        trouble(Kind.CRASH_LOOP, 1),
        trouble(Kind.STALLED, 1),
        trouble(Kind.STALLED, 2),
    ]
    assert [(one.kind, one.queries[0].id) for one in grouped(seen)] == [
        (Kind.SOURCE_UNREACHABLE, 1),
        (Kind.STALLED, 2),
    ]


def test_a_query_that_is_held_is_not_a_crash_loop_too() -> None:
    seen = [trouble(Kind.CRASH_LOOP), trouble(Kind.FAILED)]
    assert [one.kind for one in grouped(seen)] == [Kind.FAILED]


def test_a_driver_that_dies_explains_the_crash_loops_of_its_queries() -> None:
    deaths = trouble(
        Kind.DRIVER_DEATHS, 1, "deaths", queries=(AlertSubject(1, "q1"), AlertSubject(2, "q2"))
    )
    seen = [trouble(Kind.CRASH_LOOP, 1), trouble(Kind.CRASH_LOOP, 2), deaths]
    assert grouped(seen) == [deaths]


def test_records_at_risk_are_told_whatever_else_is_wrong() -> None:
    seen = [trouble(Kind.FAILED), trouble(Kind.AT_RISK)]
    assert {one.kind for one in grouped(seen)} == {Kind.FAILED, Kind.AT_RISK}


# --- what becomes of incidents ------------------------------------------------------------


def test_a_new_trouble_opens_an_incident_and_one_that_lasts_no_second() -> None:
    stalled = trouble(Kind.STALLED)
    assert acts(now=[stalled]) == [IncidentAction.OPEN]
    assert acts(known(stalled), now=[stalled]) == [IncidentAction.PERSISTS]


def test_new_evidence_updates_it() -> None:
    stalled = trouble(Kind.STALLED)
    more = replace(stalled, detail="Stalled since 03:00.")
    assert acts(known(stalled), now=[more]) == [IncidentAction.UPDATE]


def test_it_is_closed_once_its_trouble_has_been_gone_for_the_hold_time() -> None:
    stalled = trouble(Kind.STALLED)
    assert acts(known(stalled), now=[]) == [IncidentAction.QUIET]
    quiet = known(stalled, quiet_since=NOW)
    assert acts(quiet, now=[], at=NOW + QUIET_BEFORE_CLOSING - timedelta(seconds=1)) == []
    assert acts(quiet, now=[], at=NOW + QUIET_BEFORE_CLOSING) == [IncidentAction.CLOSE]


def test_a_trouble_that_flaps_stays_one_incident() -> None:
    stalled = trouble(Kind.STALLED)
    quiet = known(stalled, quiet_since=NOW - QUIET_BEFORE_CLOSING / 2)
    assert acts(quiet, now=[stalled]) == [IncidentAction.UPDATE]


def test_a_trouble_that_comes_back_within_a_day_opens_it_again() -> None:
    stalled = trouble(Kind.STALLED)
    assert acts(known(stalled, open=False), now=[stalled]) == [IncidentAction.REOPEN]
    assert acts(known(stalled, open=False), now=[]) == []


def test_what_a_person_closed_stays_closed_while_its_trouble_lasts_without_a_pause() -> None:
    stalled = trouble(Kind.STALLED)
    closed = known(stalled, open=False, closed_by="olga")
    assert acts(closed, now=[stalled]) == [IncidentAction.PERSISTS]
    assert acts(closed, now=[stalled], at=NOW + QUIET_BEFORE_CLOSING) == [IncidentAction.REOPEN]


def test_of_several_with_one_fingerprint_the_open_one_counts_else_the_newest() -> None:
    stalled = trouble(Kind.STALLED)
    newest, older = known(stalled, id=3, open=False), known(stalled, id=2, open=False)
    (change,) = changes([newest, older], [stalled], now=NOW)
    assert change.incident == newest
    (change,) = changes([newest, known(stalled, id=9)], [stalled], now=NOW)
    assert (change.act, change.incident and change.incident.id) == (IncidentAction.PERSISTS, 9)


TROUBLES = st.lists(
    st.tuples(st.sampled_from([Kind.FAILED, Kind.STALLED, Kind.CRASH_LOOP]), st.integers(1, 3)),
    max_size=6,
)


@given(st.lists(st.tuples(st.integers(1, 400), TROUBLES), max_size=20))
def test_never_are_two_incidents_of_one_fingerprint_open_and_none_without_cause(
    looks: list[tuple[int, list[tuple[Kind, int]]]],
) -> None:
    rows: dict[int, RecordedIncident] = {}
    now = NOW
    for pause, seen in looks:
        now += timedelta(seconds=pause)
        told = grouped([trouble(kind, query) for kind, query in seen])
        newest_first = sorted(rows.values(), key=lambda one: -one.id)
        for change in changes(newest_first, told, now=now):
            old = change.incident
            match change.act:
                case IncidentAction.OPEN:
                    assert change.trouble is not None
                    row = known(change.trouble, id=len(rows) + 1, seen_at=now)
                    rows[row.id] = row
                case IncidentAction.QUIET:
                    assert old is not None
                    rows[old.id] = replace(old, quiet_since=now)
                case IncidentAction.CLOSE:
                    assert old is not None
                    rows[old.id] = replace(old, open=False)
                case _:
                    assert old is not None
                    rows[old.id] = replace(old, open=True, quiet_since=None, seen_at=now)
        still = [one.fingerprint for one in rows.values() if one.open]
        assert len(still) == len(set(still))
        assert {one.fingerprint for one in told} <= set(still)
