"""Only zones that mean the same on every host are accepted."""

import pytest

from queries.domain.accepted_values import zone_names, zone_problem

NOT_ZONES = ["localtime", "posixrules", "Factory", "", "Mars", "../etc/passwd", "zone.tab", "\0"]


@pytest.mark.parametrize("name", [*NOT_ZONES, "America"])
def test_a_file_of_the_host_is_not_a_zone(name: str) -> None:
    problem = zone_problem("field", name)
    assert problem is not None
    assert (problem.field, problem.message) == ("field", "is not an IANA time zone.")
    assert '"UTC"' in problem.way_out
    assert name not in zone_names()


@pytest.mark.parametrize("folder", ["right", "posix"])
def test_a_copy_of_a_zone_leads_to_the_zone(folder: str) -> None:
    problem = zone_problem("field", f"{folder}/Europe/Berlin")
    assert problem is not None
    assert problem.way_out == 'Use "Europe/Berlin".'


def test_every_zone_that_is_offered_is_accepted() -> None:
    names = zone_names()
    assert {"UTC", "Europe/Berlin", "Australia/Lord_Howe"} <= names
    assert [name for name in names if zone_problem("field", name)] == []
