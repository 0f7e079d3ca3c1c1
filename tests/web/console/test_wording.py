"""Quantities read the same everywhere, with three figures at most."""

import pytest

from queries.domain import states
from queries.views.console import wording


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "now"),
        (0.4, "now"),
        (1, "1 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (3599, "59 min"),
        (7200, "2 h"),
        (200_000, "2 d"),
    ],
)
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    assert wording.age_words(seconds) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, "–"),
        (84.4, "84 ms"),
        (1240, "1.24 s"),
        (12_400, "12.4 s"),
        (185_000, "3 min 05 s"),
        (7_500_000, "2 h 05 min"),
        (200_000_000, "2 d 7 h"),
    ],
)
def test_a_duration_has_three_figures(ms: float | None, text: str) -> None:
    assert wording.duration_words(ms) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
        (0, "0/s"),
        (9.44, "9.44/s"),
        (1250, "1.25k/s"),
        (336_776, "337k/s"),
        (2_000_000, "2M/s"),
    ],
)
def test_a_rate_has_three_figures(value: float | None, text: str) -> None:
    assert wording.rate_words(value) == text


def test_every_state_has_a_tone() -> None:
    shown = [
        *states.Phase,
        *states.Verdict,
        *states.DriverState,
        *states.RunOutcome,
        *states.OperationOutcome,
        *states.GroupStatus,
        *states.Policy,
    ]
    assert [word for word in shown if word and word not in wording.TONES] == []


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (812, "812 B"),
        (4200, "4.2 kB"),
        (812_000, "812 kB"),
        (10_330_000, "10.3 MB"),
        (2_500_000_000, "2.5 GB"),
        (3e12, "3.0 TB"),
    ],
)
def test_a_size_has_its_unit(count: float | None, text: str) -> None:
    assert wording.size_words(count) == text


@pytest.mark.parametrize(
    ("reason", "first", "text"),
    [
        ("ASKED_START", False, "started"),
        ("ARCHIVED", True, "deleted"),
        ("", True, "defined"),
        ("", False, "changed"),
    ],
)
def test_an_act_on_a_definition_reads_as_a_sentence(reason: str, first: bool, text: str) -> None:
    assert wording.act_words(reason, subject="definition", first=first) == text


@pytest.mark.parametrize(
    ("after", "text"), [("RESOLVED", "resolved a failure of"), ("OPEN", "reopened a failure of")]
)
def test_an_act_on_a_failure_has_a_verb(after: str, text: str) -> None:
    assert wording.act_words("", subject="group", after=after) == text
