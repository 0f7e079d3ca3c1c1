"""The files between control plane and driver: what is written is what is read."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.protocol import (
    Assignment,
    AssignmentEntry,
    Current,
    DriverSpec,
    DriverStatus,
    ExitReport,
    Ident,
    RunError,
    RunState,
    RunStatus,
    Want,
    WarningCode,
)

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
names = st.lists(words, max_size=3).map(tuple)
pairs = st.dictionaries(words, words, max_size=3)
numbers = st.integers(0, 2**40)

errors = st.builds(
    RunError, words, words, words, words, refused=words, holder_pid=st.none() | numbers
)
entries = st.builds(
    AssignmentEntry,
    numbers,
    words,
    numbers,
    numbers,
    pairs,
    words,
    words,
    st.sampled_from(Want),
    deadline=st.none() | words,
    takeover=st.booleans(),
)
runs = st.builds(
    RunStatus,
    numbers,
    numbers,
    st.sampled_from(RunState),
    asked_for=st.sampled_from(Want),
    warnings=names,
    error=st.none() | errors,
)
specs = st.builds(
    DriverSpec,
    driver=numbers,
    epoch=numbers,
    application=words,
    installation=words,
    host=words,
    master=words,
    memory=words,
    conf=pairs,
    env=pairs,
    code_roots=names,
    code_sha256=words,
    scheduler_mode=words,
    listeners=names,
    redis_url=words,
    stream=words,
    jars=names,
    env_allowlist=names,
)
statuses = st.builds(
    DriverStatus,
    numbers,
    numbers,
    words,
    runs=st.lists(runs, max_size=3).map(tuple),
    error=st.none() | errors,
)
assignments = st.builds(
    Assignment, numbers, numbers, st.lists(entries, max_size=3).map(tuple), st.booleans()
)
idents = st.builds(
    Ident, words, numbers, numbers, numbers, numbers, words, jvm_pid=st.none() | numbers
)
exits = st.builds(
    ExitReport, words, words, st.booleans(), st.booleans(), words, last_seq=st.none() | numbers
)
forms = st.one_of(specs, statuses, assignments, idents, exits, st.builds(Current, numbers, words))


@given(forms)
def test_every_form_reads_back_as_it_was_written(form: DriverStatus) -> None:
    assert type(form).loads(form.dumps()) == form


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", "does not contain a JSON object"),
        ("{", "Expecting"),
        ('{"epoch": 1, "protocol": 99}', "protocol 99 is not 1"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Current.loads(text)


def test_what_no_database_takes_is_replaced_when_it_is_read() -> None:
    text = Current(1, "a\0b\ud800").dumps()
    assert Current.loads(text).directory == "a\ufffdb?"
    deep = DriverStatus(
        1, 1, "now", runs=(RunStatus(1, 1, RunState.ENDED, warnings=("\0",)),)
    ).dumps()
    assert DriverStatus.loads(deep).runs[0].warnings == ("\ufffd",)


def test_a_drivers_log_calls_a_run_by_the_number_that_pages_show() -> None:
    entry = AssignmentEntry(1, "delays", 41, 7, {}, "file:///c", "", Want.RUN)
    assert entry.called == "run 41 of delays"


def test_a_driver_within_walls_sees_the_checkpoints_that_it_was_started_with() -> None:
    text: dict[str, Any] = dict.fromkeys(
        ("application", "installation", "host", "master", "memory"), ""
    )
    more: dict[str, Any] = dict.fromkeys(
        ("code_sha256", "scheduler_mode", "redis_url", "stream"), ""
    )
    empty: dict[str, Any] = {"conf": {}, "env": {}, "code_roots": (), "listeners": ()}
    free = DriverSpec(driver=1, epoch=1, **text, **more, **empty)
    assert free.sees("file:///c/any")
    walled = replace(
        free, walls="bubblewrap", checkpoints=("file:///c/one",), folders=("/c/_app", "/c/a b")
    )
    assert walled.sees("file:///c/one")
    assert walled.sees("file:///c/_app/two")
    assert walled.sees("file:///c/a%20b/three")
    assert walled.sees("s3a://bucket/four")
    assert not walled.sees("file:///c/other")
    assert not walled.sees("file:///c/_apple/two")
    assert not walled.sees("/c/other")


def test_a_driver_of_the_last_release_can_read_an_assignment_that_uses_nothing_new() -> None:
    entry = AssignmentEntry(1, "delays", 41, 7, {}, "file:///c", "", Want.RUN)
    (sent,) = json.loads(Assignment(1, 7, (entry,)).dumps())["queries"]
    assert "dump" not in sent
    asked = Assignment(1, 7, (replace(entry, dump="10:00"),))
    assert Assignment.loads(asked.dumps()) == asked


@given(specs)
def test_the_file_of_a_driver_of_the_last_release_can_be_read(spec: DriverSpec) -> None:
    """Such a file has the host account that the driver ran as, also if there was none."""
    stored = json.loads(spec.dumps())
    assert DriverSpec.loads(json.dumps({**stored, "account": ""})) == spec


def test_a_warning_is_found_by_its_code_among_whatever_the_column_holds() -> None:
    text = WarningCode.NOT_FENCED.text("its classes are missing")
    assert WarningCode.NOT_FENCED.find_in(["another", text]) == text
    assert WarningCode.BATCHES_UNKNOWN.find_in(["another", text]) == ""
    assert WarningCode.NOT_FENCED.find_in({"text": text}) == ""
