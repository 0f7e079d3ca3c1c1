"""Labels of enum values: one for each value, and none for a value that does not exist."""

from queries.domain import labels
from queries.domain.alerts.forms import DeliveryState
from queries.domain.deploys.request import ChangeState
from queries.domain.schedules.planning import PlannedState
from queries.domain.states import Verb, Verdict


def test_each_state_of_a_change_has_a_label_of_its_own() -> None:
    shown = {state: labels.state_label(state) for state in ChangeState}
    assert shown[ChangeState.KEPT] == "Not rolled back"
    assert shown[ChangeState.RESTARTED] == "Restarted", "by default, the state's name"
    assert len(set(shown.values())) == len(shown)


def test_each_verb_has_a_label_of_its_own() -> None:
    shown = {verb: labels.verb_label(verb) for verb in Verb}
    assert shown[Verb.XRAY] == "State inspection"
    assert shown[Verb.DECLARE_GONE] == "Declare host gone", "by default, the verb"
    assert len(set(shown.values())) == len(shown)


def test_no_label_is_that_of_a_value_that_is_gone() -> None:
    assert set(labels.LABELS) <= set(ChangeState)
    assert set(labels.VERDICT_LABELS) <= set(Verdict)
    assert set(labels.VERB_LABELS) <= set(Verb)


def test_only_a_verdict_waits_for_its_source() -> None:
    assert labels.verdict_label(Verdict.WAITING) == "Waiting for source"
    assert labels.verdict_label(Verdict.CATCHING_UP) == "Catching up"
    assert labels.state_label(PlannedState.WAITING) == "Waiting"
    assert labels.state_label(DeliveryState.WAITING) == "Waiting"
