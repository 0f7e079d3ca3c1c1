"""A rewind of a query that a script starts: the path that the script names leads elsewhere."""

from pathlib import Path

import pytest
from django.utils import timezone

from queries.domain.errors import NotAllowed
from queries.domain.states import OperationOutcome
from queries.models.history import Operation
from queries.services.checkpoints import rewind_and_reset
from queries.services.checkpoints.source_starts import WantedStart
from queries.services.procedures.engine import advance, due_operations
from queries.tasks import PROCEDURES
from tests.checkpoints.forms import write_checkpoint
from tests.scenarios.scripts.stage import ScriptStage

pytestmark = pytest.mark.django_db


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "cp" / "counts", batches=range(10))
    return tmp_path / "cp" / "counts"


@pytest.fixture
def stage(place: Path) -> ScriptStage:
    stage = ScriptStage()
    stage.now = timezone.now()  # the engine looks at the clock itself, at each step
    stage.running()
    stage.find("counts", asked=f"file://{place}", location=f"file://{place}")
    return stage


def work(stage: ScriptStage) -> None:
    """Let a worker take every step that can be taken, and supervision with it."""
    # Steps note the time of the clock on the wall, which a slow machine's story falls behind.
    stage.now = max(stage.now, timezone.now())
    for _ in range(4):
        for operation in due_operations(now=timezone.now()):
            advance(operation, procedures=PROCEDURES, launcher=stage.launcher, now=stage.now)
        stage.wait(1)


def test_the_script_stops_and_starts_again_on_the_new_directory(
    stage: ScriptStage, place: Path
) -> None:
    query = stage.row("job/counts")
    operation = rewind_and_reset.request_rewind(query=query, batch=5, actor="olga", now=stage.now)
    work(stage)
    assert stage.script.phase == "STOPPING"
    stage.launcher.leave("job")
    stage.look("job")
    work(stage)
    done = Operation.objects.get(pk=operation.pk)
    assert done.outcome == OperationOutcome.DONE, done.detail
    assert stage.script.desired == "RUNNING"

    job = stage.launcher.spec("job").script
    assert job is not None
    [known] = job.known
    assert known.asked == f"file://{place}"
    assert known.location.startswith(f"file://{place}.r5-")
    assert (place / "commits" / "9").exists()

    stage.ready("job")
    stage.find("counts", asked=f"file://{place}")
    assert stage.run("job/counts").checkpoint.location == known.location
    assert stage.phase("job/counts") == "RUNNING"


def test_what_needs_a_definition_is_refused(stage: ScriptStage) -> None:
    wanted = WantedStart(to="earliest")
    with pytest.raises(NotAllowed, match="script of application job"):
        rewind_and_reset.request_reset(
            query=stage.row("job/counts"), wish=wanted, actor="olga", now=stage.now
        )
