"""Which application a new query may join, and what of an application is for good."""

import pytest

from queries.domain.validation.joining import joining_problems, kind_problem, team_problem


@pytest.mark.parametrize(
    ("kind", "holder", "message"),
    [
        ("queries", "", None),
        ("queries", "delays", "was created only for query delays."),
        ("script", "", "runs a script that starts its own queries."),
    ],
)
def test_a_query_joins_an_application_of_queries_that_is_nobodys_own(
    kind: str, holder: str, message: str | None
) -> None:
    found = joining_problems("flights", kind=kind, holder=holder)
    assert [one.message for one in found] == ([message] if message else [])
    assert all((one.field, one.value) == ("application", "flights") for one in found)
    assert all(one.way_out for one in found)


def test_a_team_is_for_a_new_application() -> None:
    assert team_problem("flights", "") is None
    problem = team_problem("flights", "data")
    assert problem is not None
    assert (problem.field, problem.value) == ("team", "data")
    assert "application flights" in problem.way_out


def test_the_kind_of_an_application_is_for_good() -> None:
    assert kind_problem("script", "script") is None
    problem = kind_problem("queries", "script")
    assert problem is not None
    assert (problem.field, problem.value) == ("kind", "script")
