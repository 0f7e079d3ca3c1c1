"""The health of the system: which parts decide, and which are named as problems."""

from datetime import UTC, datetime

import pytest

from queries.domain.system import (
    READY_PARTS,
    Part,
    PartState,
    SystemHealth,
    clock,
    first_line,
    ok,
    problem,
    unknown,
)

AT = datetime(2026, 3, 1, 8, 30, tzinfo=UTC)


def health(*parts: Part) -> SystemHealth:
    return SystemHealth(AT, parts)


def test_a_part_that_cannot_be_checked_is_not_ok_and_is_no_problem_of_its_own() -> None:
    part = unknown("worker", "Redis is not responding")
    assert part.sentence == "Unknown: Redis is not responding."
    found = health(ok("database", "SQLite responds."), part)
    assert not found.ok
    assert found.problems == ()


@pytest.mark.parametrize("name", READY_PARTS)
def test_the_system_is_not_ready_while_a_required_part_has_a_problem(name: str) -> None:
    assert not health(problem(name, "It is down.", AT)).ready


def test_a_silent_host_is_a_problem_and_the_system_is_ready() -> None:
    silent = problem("hosts", "Host b is not responding.", AT)
    found = health(ok("database", "SQLite responds."), silent)
    assert found.ready
    assert not found.ok
    assert found.problems == (silent,)
    assert silent.state is PartState.PROBLEM


def test_times_and_errors_are_shown_in_one_form() -> None:
    assert clock(AT) == "08:30:00 UTC"
    assert first_line(ValueError("no room\nfor a session")) == "no room"
    assert first_line(ValueError("password=tr0ub4dor")) == "password=••••••"
    assert first_line(TimeoutError()) == "TimeoutError"
