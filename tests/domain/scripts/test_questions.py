"""When a script is asked which query is which, and what of a question is believed."""

from dataclasses import replace
from typing import Any

import pytest

from queries.domain.failures.diagnosis import classify
from queries.domain.protocol import KnownQuery, ScriptJob, ScriptQuestion
from queries.domain.scripts import as_json, believed_question, called, question
from queries.domain.states import Policy

OLD = KnownQuery(7, "name:old", "", "file:///cp/old")
MORE = KnownQuery(8, "name:more", "", "file:///cp/more")
JOB = ScriptJob("job.py", "", (), "/work", "file:///cp", known=(OLD, MORE))
ASKED = ScriptQuestion("name:new", "new", "", (7,))


def asked(job: ScriptJob, *met: str, name: str = "new") -> tuple[int, ...]:
    found = question(job, met, identity=f"name:{name}", name=name, checkpoint="")
    return found.missing if found else ()


def test_a_new_query_is_asked_about_while_known_ones_have_not_been_started() -> None:
    assert asked(JOB) == (7, 8)
    assert asked(JOB, "name:more") == (7,)


@pytest.mark.parametrize(
    ("job", "met", "name"),
    [
        (JOB, ("name:old", "name:more"), "new"),  # one was added after the others
        (JOB, (), "old"),  # known
        (replace(JOB, known=()), (), "new"),  # the first start
        (replace(JOB, accepted=("name:new",)), (), "new"),  # an author has said that it is another
        (replace(JOB, known=(replace(OLD, gone=True),)), (), "new"),
        (replace(JOB, known=(replace(OLD, location="file:///cp/old.temporary"),)), (), "new"),
    ],
)
def test_and_otherwise_starts(job: ScriptJob, met: tuple[str, ...], name: str) -> None:
    assert asked(job, *met, name=name) == ()


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({}, (7,)),
        ({"missing": (7, 9)}, (7,)),
        ({"missing": (9,)}, None),
        ({"identity": "name:other"}, None),
        ({"name": "a\nb", "identity": "name:a\nb"}, None),
        ({"name": "x" * 2000, "identity": "name:" + "x" * 2000}, None),
    ],
)
def test_a_question_is_believed_by_its_form_and_about_queries_that_are_there(
    changes: dict[str, Any], missing: tuple[int, ...] | None
) -> None:
    found = believed_question(replace(ASKED, **changes), {7, 8})
    assert (found.missing if found else None) == missing


def test_no_question_is_none() -> None:
    assert believed_question(None, {7}) is None


def test_a_row_keeps_it_as_json() -> None:
    kept = {"identity": "name:new", "name": "new", "asked": "", "missing": [7]}
    assert as_json(ASKED) == kept


@pytest.mark.parametrize(
    ("name", "place", "words"),
    [
        ("new", "file:///cp/x", '"new"'),
        ("", "file:///cp/x", "with the checkpoint file:///cp/x"),
        ("", "", "without a name"),
    ],
)
def test_it_is_called_by_what_the_script_says(name: str, place: str, words: str) -> None:
    assert called(name, place) == words


def test_it_holds_the_script_instead_of_trying_again() -> None:
    found = classify(
        error_class="HEADGATE_QUERY_IDENTITY",
        type_name="StartRefused",
        root_cause="The query is new.",
        message="",
        in_batch=False,
    )
    assert found.policy is Policy.FATAL
    assert "An author" in found.way_out
