"""A selector means the incidents of which all that it names holds."""

from typing import Any

import pytest

from queries.domain.alerts.forms import IncidentKind, Selector, Severity

INCIDENT: dict[str, Any] = {
    "kind": IncidentKind.STALLED,
    "severity": Severity.CRITICAL,
    "application": "flights",
    "labels": {"team": "a", "tier": "1"},
}


@pytest.mark.parametrize(
    ("selector", "meant"),
    [
        (Selector(), True),
        (Selector(labels={"team": "a"}), True),
        (Selector(labels={"team": "a", "tier": "2"}), False),
        (Selector(labels={"area": "x"}), False),
        (Selector(kinds=[IncidentKind.STALLED, IncidentKind.FAILED]), True),
        (Selector(kinds=[IncidentKind.FAILED]), False),
        (Selector(severities=[Severity.WARNING]), False),
        (Selector(severities=[Severity.CRITICAL], applications=["flights"]), True),
        (Selector(applications=["other"]), False),
    ],
)
def test_a_selector_means_what_all_its_parts_hold_of(selector: Selector, meant: bool) -> None:
    assert selector.matches(**INCIDENT) is meant


def test_a_kind_brings_its_words_and_its_severity() -> None:
    assert IncidentKind.LAGGING.severity is Severity.WARNING
    assert IncidentKind("stuck-stop").label == "Stop hangs"
