"""The operator's verbs, and the picture of the phases."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from queries.domain.errors import NotAllowed
from queries.domain.states import FAILED_PHASES, Desired, Phase, StopMode, Verb
from queries.domain.supervision import phases
from queries.domain.supervision.phases import TRANSITIONS, TransitionInput

DIAGRAM = Path(__file__).parents[3] / "docs" / "architecture.md"


def asked(
    desired: Desired = Desired.STOPPED,
    phase: Phase = Phase.STOPPED,
    *,
    mode: StopMode = StopMode.GRACEFUL,
    archived: bool = False,
    has_run: bool = False,
    open_restart: bool = False,
) -> TransitionInput:
    return TransitionInput("delays", desired, phase, mode, archived, has_run, open_restart)


RUNNING = asked(Desired.RUNNING, Phase.RUNNING, has_run=True)


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.STOPPING])
def test_a_start_under_way_changes_nothing(phase: Phase) -> None:
    assert phases.start(asked(Desired.RUNNING, phase)) is None


@pytest.mark.parametrize("phase", sorted(FAILED_PHASES))
def test_a_start_cuts_waiting_short_on_the_newest_revision(phase: Phase) -> None:
    change = phases.start(asked(Desired.RUNNING, phase))
    assert change == phases.DesiredStateChange(Verb.START, Desired.RUNNING, StopMode.GRACEFUL, True)


@pytest.mark.parametrize("phase", sorted(FAILED_PHASES))
def test_a_failed_query_is_tried_again_on_the_revision_that_it_has(phase: Phase) -> None:
    change = phases.retry(asked(Desired.RUNNING, phase))
    assert change == phases.DesiredStateChange(
        Verb.START, Desired.RUNNING, StopMode.GRACEFUL, False
    )
    assert phases.retry(RUNNING) is None
    assert phases.retry(asked(Desired.STOPPED, phase)) is None


def test_a_stop_at_once_overtakes_a_graceful_one_and_not_the_other_way_round() -> None:
    stopping = asked(Desired.STOPPED, Phase.STOPPING, has_run=True)
    assert phases.stop(stopping, StopMode.GRACEFUL) is None
    change = phases.stop(stopping, StopMode.NOW)
    assert change is not None
    assert change.stop_mode is StopMode.NOW
    at_once = asked(Desired.STOPPED, Phase.STOPPING, mode=StopMode.NOW, has_run=True)
    assert phases.stop(at_once, StopMode.GRACEFUL) is None


def test_a_stopped_query_needs_no_stop() -> None:
    assert phases.stop(asked(), StopMode.NOW) is None
    assert phases.stop(RUNNING, StopMode.GRACEFUL) is not None


def test_a_restart_joins_one_under_way_unless_it_waits() -> None:
    assert phases.restart(RUNNING) is not None
    joined = asked(Desired.RUNNING, Phase.STOPPING, has_run=True, open_restart=True)
    assert phases.restart(joined) is None
    failed = asked(Desired.RUNNING, Phase.FAILED, open_restart=True)
    assert phases.restart(failed) is not None


def test_only_a_stopped_query_is_deleted() -> None:
    phases.archive(asked())
    with pytest.raises(NotAllowed, match="Stop it first"):
        phases.archive(RUNNING)


def test_a_deleted_query_takes_no_verb() -> None:
    with pytest.raises(NotAllowed, match="Define it again"):
        phases.start(asked(archived=True))


def test_the_state_diagram_shows_exactly_the_transitions_of_the_code() -> None:
    text = DIAGRAM.read_text()
    diagram = text[text.index("stateDiagram-v2") : text.index("```", text.index("stateDiagram-v2"))]
    drawn = set(re.findall(r"^\s*([A-Z_]+) --> ([A-Z_]+)", diagram, re.MULTILINE))
    assert drawn == {(before.value, after.value) for before, after in TRANSITIONS}


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_explains_itself(phase: Phase) -> None:
    assert phase.description.endswith(".")
    assert phase.label == phase.label.capitalize()


def test_what_may_run_on_a_silent_host_is_not_deleted_and_names_the_way_out() -> None:
    lost = replace(asked(Desired.STOPPED, Phase.UNREACHABLE, has_run=True), away="host-b")
    with pytest.raises(NotAllowed, match="may still run on host host-b") as told:
        phases.archive(lost)
    assert "declare it gone" in told.value.way_out
