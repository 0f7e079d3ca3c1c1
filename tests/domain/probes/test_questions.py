"""What a probe is asked and answers survives the way through a file."""

import pytest

from queries.domain.probes.questions import (
    Attempt,
    AttemptEnd,
    PlanSeen,
    PreflightTask,
    ProbeResult,
    Tried,
    XrayTask,
    read_task,
)


@pytest.mark.parametrize(
    "task",
    [
        PreflightTask("q", {"kind": "sql"}, "/tmp/x", 60, 20, old_code_roots=("/a", "/b")),
        XrayTask("file:///c", 60, 50, contains="WN"),
    ],
)
def test_a_task_is_read_as_it_was_written(task: PreflightTask | XrayTask) -> None:
    assert read_task(task.dumps()) == task


@pytest.mark.parametrize(
    "result",
    [
        ProbeResult("Starting Spark"),
        ProbeResult(
            "Comparing the plans",
            done=True,
            tried=(Tried(Attempt.REPLAY, AttemptEnd.PASSED, 4, 20, 300),),
            plan=PlanSeen({"op": "Project"}, "append", (("a", "string"),)),
            old_plan=PlanSeen(missing="gone"),
        ),
    ],
)
def test_a_result_is_read_as_it_was_written(result: ProbeResult) -> None:
    assert ProbeResult.loads(result.dumps()) == result
