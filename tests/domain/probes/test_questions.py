"""What a probe is asked and answers survives the way through a file."""

import json
from typing import Any

import pytest

from queries.domain.probes.questions import (
    MOST_CHARACTERS,
    STATE_NUMBERS,
    AttemptEnd,
    BatchRead,
    PlanSeen,
    PreflightAttempt,
    PreflightTask,
    ProbeResult,
    RecordsTask,
    Tried,
    UnreadableResult,
    XrayTask,
    read_result,
    read_task,
)


@pytest.mark.parametrize(
    "task",
    [
        PreflightTask("q", {"kind": "sql"}, "/tmp/x", 60, 20, old_code_roots=("/a", "/b")),
        XrayTask("file:///c", 60, 50, contains="WN"),
        RecordsTask(
            {"kind": "sql"},
            (BatchRead("a", ("file:///a",)), BatchRead("b", (), {"t": {"0": 1}}, {"t": {"0": 9}})),
            rows=5,
            looked_at=100,
            limit_s=60,
            search_s=20,
        ),
    ],
)
def test_a_task_is_read_as_it_was_written(
    task: PreflightTask | XrayTask | RecordsTask,
) -> None:
    assert read_task(task.dumps()) == task


@pytest.mark.parametrize(
    "result",
    [
        ProbeResult("Starting Spark"),
        ProbeResult(
            "Comparing the plans",
            done=True,
            tried=(Tried(PreflightAttempt.REPLAY, AttemptEnd.PASSED, 4, 20, 300),),
            plan=PlanSeen({"op": "Project"}, "append", (("a", "string"),)),
            old_plan=PlanSeen(missing="gone"),
        ),
    ],
)
def test_a_result_is_read_as_it_was_written(result: ProbeResult) -> None:
    assert ProbeResult.loads(result.dumps()) == result


WHOLE = ProbeResult("Reading the state", done=True, state=dict.fromkeys(STATE_NUMBERS, 0))


def test_an_answer_of_an_x_ray_is_read_as_it_was_written() -> None:
    assert read_result(WHOLE.dumps()) == WHOLE


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (WHOLE.dumps()[:-20], "JSONDecodeError"),  # half-written
        ('"done":true', "JSONDecodeError"),
        ("[1, 2]", "not contain a JSON object"),
        ('{"at": "x", "done": true}', "KeyError"),
        ("[" * 100_000, "nested too deeply"),
        (" " * (MOST_CHARACTERS + 1), "more than 16,000,000 characters"),
    ],
)
def test_what_is_no_whole_answer_is_refused(text: str, says: str) -> None:
    with pytest.raises(UnreadableResult, match=says):
        read_result(text)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"done": "true"}, "its done"),
        ({"at": None}, "its at"),
        ({"took_ms": 3}, "its took_ms"),
        ({"state": {"rows": 1}}, "numbers are missing from its state"),
        ({"records": {"sources": []}}, "parts of its records are missing"),
        ({"tried": [{"attempt": "guess", "end": "passed"}]}, "ValueError"),
        ({"plan": "Project"}, "ValueError"),
        ({"verdict": "passed"}, "TypeError"),
    ],
)
def test_an_answer_of_another_form_is_refused(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(UnreadableResult, match=says):
        read_result(json.dumps(json.loads(WHOLE.dumps()) | changed))
