"""The pages that describe states and fields agree with the code that they describe."""

import re
import sys
from datetime import timedelta
from itertools import takewhile
from pathlib import Path

import pytest

from queries.domain.definitions.spec import Schedule
from queries.domain.restart import JITTER, RestartPolicy, delay
from queries.domain.schedules.checks import schedule_problems
from queries.domain.states import Phase, Policy, Verdict

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
sys.path.append(str(REPOSITORY / "bootstrap"))

import reference  # noqa: E402

STATES = (DOCS / "states-and-restarts.md").read_text()
PAGES = sorted(page for page in DOCS.glob("*.md") if reference.names_in(page.read_text()))


def column(table: str) -> list[str]:
    """Return the first column of the first table in a text, without its head."""
    lines = table.partition("\n| ")[2].splitlines()[2:]
    rows = [*takewhile(lambda line: line.startswith("|"), lines)]
    assert len(rows) > 2
    return [row.split(" | ")[0].removeprefix("| ") for row in rows]


def below(heading: str) -> str:
    """Return the section of the page of states with this heading."""
    return STATES.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("document", PAGES, ids=lambda document: document.name)
def test_tables_of_fields_are_those_of_the_models(document: Path) -> None:
    text = document.read_text()
    assert reference.renewed(text, page=document.name) == text, "run `make docs-reference`"


def test_every_table_is_on_a_page() -> None:
    shown = [name for page in PAGES for name in reference.names_in(page.read_text())]
    assert sorted(shown) == sorted([*reference.TABLES, "triggers"])


@pytest.mark.parametrize("name", reference.TABLES)
def test_every_field_has_a_meaning(name: str) -> None:
    without = [
        shown for shown, _, meaning in reference.fields_of(reference.TABLES[name]) if not meaning
    ]
    assert without == []


def test_a_changed_default_changes_its_table() -> None:
    class Slower(RestartPolicy):
        #: Delay.
        base_delay_s: float = 7

    rows = reference.rows_of((Slower,), place="")
    assert "| `base_delay_s` | number | `7` | Delay |\n" in rows


def test_the_table_of_phases_has_each_phase_with_its_anchor() -> None:
    assert column(below("Phases")) == [f'<a id="{one.lower()}"></a>{one}' for one in Phase]


def test_the_table_of_verdicts_has_each_verdict_with_its_anchor() -> None:
    names = [
        row.removesuffix(" (shown as *Waiting for source*)") for row in column(below("Verdicts"))
    ]
    assert sorted(names) == sorted(f'<a id="{one.lower()}"></a>{one}' for one in Verdict)


def test_the_table_of_policies_has_each_policy() -> None:
    assert sorted(column(below("When a failure is retried"))) == sorted(Policy)


def test_the_delays_are_those_of_the_default_policy() -> None:
    policy = RestartPolicy()
    [listed] = re.findall(r"With the defaults: ([\d, ]+), then always (\d+) seconds", STATES)
    shown = [*map(int, listed[0].split(", ")), int(listed[1])]
    for n, seconds in enumerate(shown, start=1):
        real = delay(policy, n, key="a query")
        near = timedelta(seconds=seconds * JITTER)
        assert abs(real - timedelta(seconds=seconds)) <= near, n


def test_every_form_of_cron_that_is_listed_is_accepted() -> None:
    rows = column((DOCS / "definitions.md").read_text().partition("**The dialect of `cron`.**")[2])
    place = {"day of month": 2, "day of week": 4}
    listed = [
        (value, place.get(row.partition(" in ")[2], 1))
        for row in rows
        for value in re.findall(r"`([^`]+)`", row)
    ]
    assert len(listed) >= 9
    for value, at in listed:
        fields = ["*"] * 5
        fields[at] = value
        assert schedule_problems(Schedule(cron=" ".join(fields)), ends=True) == [], value
