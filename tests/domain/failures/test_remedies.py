"""What to offer for a failure is decided by a code: no decision reads a sentence."""

import ast
from pathlib import Path

import pytest

from headgate_ground.packages import OURS
from queries.domain.failures.categories import Remedy
from queries.domain.failures.diagnosis import Classified, classify
from queries.domain.failures.rules import CONDITION_RULES, MESSAGE_RULES, TYPE_RULES

REPOSITORY = Path(__file__).resolve().parents[3]
SENTENCES = frozenset({"meaning", "way_out"})


def _classified(text: str, error_class: str = "") -> Classified:
    return classify(
        error_class=error_class,
        type_name="java.lang.IllegalStateException",
        root_cause=text,
        message=text,
    )


@pytest.mark.parametrize(
    ("error_class", "text", "remedy"),
    [
        ("", "batch 111 doesn't exist", Remedy.ASYNC_OFF),
        ("HEADGATE_TOPIC_RECREATED", "clicks was recreated", Remedy.TO_EARLIEST),
        ("", "Incomplete log file", Remedy.NONE),
    ],
)
def test_the_remedy_of_a_failure(error_class: str, text: str, remedy: Remedy) -> None:
    assert _classified(text, error_class).remedy is remedy


def test_every_remedy_has_its_rule() -> None:
    rules = (*CONDITION_RULES, *MESSAGE_RULES, *TYPE_RULES)
    assert {rule.advice.remedy for rule in rules} == set(Remedy)


def test_no_decision_reads_what_advice_says() -> None:
    reading = [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for app in OURS
        for path in (REPOSITORY / app).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Attribute) and side.attr in SENTENCES
    ]
    assert reading == []
