"""Stories of a script whose checkpoint is another one at each start."""

import pytest

from queries.selectors.alerts.troubles import ONCE_FOR, troubles
from tests.scenarios.scripts.stage import ScriptStage

pytestmark = pytest.mark.django_db


@pytest.fixture
def moved() -> ScriptStage:
    """Return a stage whose script names a checkpoint with the application's ID in it."""
    stage = ScriptStage()
    stage.running()
    stage.find(
        "counts", asked="file:///checkpoints/local-1", location="file:///checkpoints/local-1"
    )
    stage.launcher.leave("job")
    stage.look("job")
    stage.wait(60)
    stage.ready("job")
    stage.find(
        "counts", asked="file:///checkpoints/local-2", location="file:///checkpoints/local-2"
    )
    stage.look("job")
    return stage


def kinds(stage: ScriptStage) -> list[str]:
    return [str(one.kind) for one in troubles([], now=stage.now)]


def test_the_place_of_before_and_the_one_of_now_are_named(moved: ScriptStage) -> None:
    [note] = moved.script.notes
    assert (
        "job/counts was file:///checkpoints/local-1, and is now file:///checkpoints/local-2" in note
    )
    assert "read again or skipped" in note
    assert kinds(moved) == ["checkpoint-moved"]


def test_a_script_that_names_the_same_place_again_is_not_noted(moved: ScriptStage) -> None:
    moved.wait(ONCE_FOR.total_seconds() + 1)
    moved.launcher.leave("job")
    moved.look("job")
    moved.wait(60)
    moved.ready("job")
    moved.find(
        "counts", asked="file:///checkpoints/local-2", location="file:///checkpoints/local-2"
    )
    moved.look("job")
    assert moved.script.notes == []
    assert kinds(moved) == []


def test_what_is_temporary_may_move(moved: ScriptStage) -> None:
    moved.row("job/counts").checkpoints.update(created_at=moved.now)
    type(moved.row("job/counts")).objects.update(temporary="the memory sink forgets its rows")
    assert kinds(moved) == []
