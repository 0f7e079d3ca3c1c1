"""Labels of enum values, as people read them: on badges, in filters, headings and sentences.

Values that have no entry are labelled by their name: "CATCHING_UP" is "Catching up".
"""

from queries.domain.deploys.request import ChangeState
from queries.domain.states import Verb, Verdict

#: States with a label other than their name.
LABELS: dict[str, str] = {
    ChangeState.TRIED: "Preflighted",
    ChangeState.SAVED: "Snapshotted",
    ChangeState.WRITTEN: "Applied",
    ChangeState.GOOD: "Passed",
    ChangeState.BAD: "Failed",
    ChangeState.KEPT: "Not rolled back",
    ChangeState.GOING_BACK: "Rolling back",
    ChangeState.LEFT: "Unchanged",
}
#: Verdicts that share their name with another state: planned runs and deliveries wait too.
VERDICT_LABELS: dict[str, str] = {Verdict.WAITING: "Waiting for source"}
#: Operations with a label other than their verb.
VERB_LABELS: dict[str, str] = {
    Verb.GO_ON: "Skip lost data",
    Verb.ASYNC_OFF: "Async progress tracking off",
    Verb.XRAY: "State inspection",
    Verb.RECORDS: "Batch records",
    Verb.START_MANY: "Bulk start",
    Verb.STOP_MANY: "Bulk stop",
    Verb.RESTART_MANY: "Bulk restart",
}


def state_label(state: str) -> str:
    """Return the label of a state: "Catching up"."""
    return LABELS.get(state) or _named(state)


def verdict_label(verdict: str) -> str:
    """Return the label of a verdict: "Waiting for source"."""
    return VERDICT_LABELS.get(verdict) or _named(verdict)


def verb_label(verb: str) -> str:
    """Return the label of an operation: "State inspection"."""
    return VERB_LABELS.get(verb) or _named(verb)


def _named(value: str) -> str:
    return value.replace("_", " ").replace("-", " ").capitalize()
