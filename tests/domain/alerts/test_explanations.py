"""Each kind of incident states its cause, its place and the next step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.alerts.explanations import (
    OF_APPLICATION,
    OF_FAILURE,
    OF_QUERY,
    FailureTexts,
    IncidentScope,
    NextStepPage,
    explained,
    over,
)
from queries.domain.alerts.forms import IncidentKind as Kind

FAULT = FailureTexts(
    "NPE: x is null", "The query's own code raised an error.", "Correct the SQL.", 7
)
HERE = IncidentScope(queries=("delays",), application="flights", run=12, host="a")


@pytest.mark.parametrize("fault", [None, FAULT])
@pytest.mark.parametrize(
    "place", [HERE, IncidentScope(), IncidentScope(queries=("a", "b"), more=3, host="h")]
)
@pytest.mark.parametrize("kind", Kind)
def test_every_kind_has_a_cause_a_place_and_a_next_step(
    kind: Kind, place: IncidentScope, fault: FailureTexts | None
) -> None:
    found = explained(kind, "", place, fault)
    assert found.cause.endswith(".")
    assert found.place
    assert found.step.endswith(".")
    assert found.page not in OF_QUERY or (len(place.queries) == 1 and not place.more)
    assert found.page not in OF_APPLICATION or place.application
    assert found.page is not NextStepPage.FAILURE or fault


@pytest.mark.parametrize("kind", sorted(OF_FAILURE - {Kind.QUERY_IDENTITY}))
def test_an_incident_of_a_failure_takes_all_from_it(kind: Kind) -> None:
    found = explained(kind, "5 failures since 18:26 UTC", HERE, FAULT)
    assert found.cause.startswith("NPE: x is null. 5 failures since 18:26 UTC. The query's own")
    assert found.place == "query delays, batch 7, run 12, application flights, host a"
    assert (found.step, found.page) == ("Correct the SQL.", NextStepPage.FAILURE)
    assert explained(kind, "NPE: x is null. Twice.", HERE, FAULT).cause.count("NPE") == 1


def test_a_script_that_asks_needs_the_answer_whatever_failed() -> None:
    found = explained(Kind.QUERY_IDENTITY, "", HERE, FAULT)
    assert (found.page, "Answer" in found.step) == (NextStepPage.QUESTION, True)


def test_what_the_detail_states_of_a_failure_is_not_told_twice() -> None:
    full = FailureTexts(
        "IOException: No space left on device", "A disk is full.", "Free up space.", 1
    )
    detail = "No space left on device. 0 MB of 25 MB are free."
    assert explained(Kind.DISK, detail, HERE, full).cause == f"{detail} A disk is full."


def test_what_is_no_failure_is_not_explained_by_one() -> None:
    found = explained(Kind.LAGGING, "Lagging since 18:26 UTC", HERE, FAULT)
    assert "NPE" not in found.cause
    assert "batch 7" not in found.place


def test_only_the_first_line_of_a_dump_is_told() -> None:
    dump = "Cannot fetch offset 5\n\tat org.apache.kafka.Fetcher.poll(Fetcher.java:1)\nCaused by: x"
    cause = explained(Kind.CHANNEL_DEAD, dump, HERE).cause
    assert cause.startswith("Cannot fetch offset 5. ")
    assert "\tat" not in cause


@given(st.sampled_from(Kind), st.sampled_from(["", "ada"]), st.sampled_from(["", "It was taken."]))
def test_an_end_claims_nothing_of_the_time_before(kind: Kind, by: str, accepted: str) -> None:
    text = over(kind, by, accepted)
    assert text.startswith("ada closed it." if by else "The problem has cleared.")
    assert accepted in text
    assert not {"may", "will"} & set(text.split())
