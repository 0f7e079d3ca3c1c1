"""Every reason that pages show is made to happen by a test; a new one without a test fails here.

A reason is either told by a story below, or asserted by the test that `ELSEWHERE` names.
"""

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from queries.domain.protocol import RunError
from queries.domain.states import Reason, RunOutcome
from queries.models.applications import Script
from queries.models.definitions import Query
from queries.models.drivers import Driver, Run
from queries.models.history import FailureGroup, Transition
from queries.services.failures import resolve_group
from queries.services.supervision.application_operations import request_application_restart
from queries.services.supervision.operations import archive_query
from tests.scenarios.scripts.stage import ScriptStage
from tests.scenarios.stage import BROKEN_PIPE, DIVIDE, NO_SUCH_SOURCE, Stage

pytestmark = pytest.mark.django_db

TESTS = Path(__file__).parents[2]
#: Reason -> file and test that makes it happen and asserts it by its name.
ELSEWHERE: dict[Reason, tuple[str, str]] = {
    Reason.STANDS_BY: (
        "services/supervision/test_standbys.py",
        "test_a_standby_waits_once_its_driver_is_calm",
    ),
    Reason.TOOK_OVER: (
        "services/supervision/test_standbys.py",
        "test_a_standby_takes_over_when_the_driver_dies",
    ),
    Reason.GIVEN_UP: (
        "services/supervision/test_standbys.py",
        "test_a_standby_gives_its_memory_to_a_driver",
    ),
    Reason.WAITS_CODE: (
        "domain/supervision/test_decide.py",
        "test_a_query_waits_for_its_code_which_is_put_into_place",
    ),
    Reason.WAITS_CLASSES: (
        "domain/supervision/test_decide.py",
        "test_a_query_whose_checkpoint_is_not_local_waits_for_our_classes_and_says_why",
    ),
    Reason.WAITS_THREAD: (
        "scenarios/test_hanging_runs.py",
        "test_a_start_that_never_returns_fails_once_and_says_who_is_affected",
    ),
    Reason.STUCK: (
        "scenarios/test_hanging_runs.py",
        "test_a_stop_that_times_out_in_a_shared_driver_releases_nothing",
    ),
    Reason.HANGS: (
        "scenarios/test_hanging_runs.py",
        "test_a_driver_whose_other_queries_have_stopped_is_ended_without_a_click",
    ),
    Reason.WAITS_EXECUTOR: (
        "domain/supervision/test_decide.py",
        "test_a_query_without_an_executor_says_what_was_asked_for",
    ),
    Reason.HOST_GONE: (
        "services/supervision/test_hosts_declared_gone.py",
        "test_its_driver_counts_as_dead_and_its_query_waits_with_its_checkpoint",
    ),
    Reason.HOST_SILENT: (
        "scenarios/test_two_hosts.py",
        "test_a_query_whose_checkpoint_is_on_a_silent_host_waits_and_says_for_which",
    ),
    Reason.KILLS_DRIVER: (
        "scenarios/test_blast_radius.py",
        "test_the_query_at_whose_start_or_first_batch_the_driver_dies_is_held",
    ),
    Reason.WAITS_TURN: (
        "scenarios/test_blast_radius.py",
        "test_after_three_deaths_queries_start_one_after_the_other_and_say_so",
    ),
    Reason.STALLED: (
        "scenarios/test_stalls.py",
        "test_a_stalled_query_is_restarted_where_its_policy_says_so",
    ),
    Reason.SHUTDOWN: (
        "domain/supervision/test_decide.py",
        "test_what_the_stopping_of_the_installation_ended_starts_again_as_resumed",
    ),
    Reason.RESUMED: (
        "domain/supervision/test_decide.py",
        "test_what_the_stopping_of_the_installation_ended_starts_again_as_resumed",
    ),
    Reason.START_TIMED_OUT: (
        "scenarios/test_failed_starts.py",
        "test_a_start_that_passes_its_deadline_has_failed_and_nobody_asked_for_a_restart",
    ),
    Reason.REWOUND: (
        "services/checkpoints/test_procedures.py",
        "test_a_rewind_points_the_query_at_a_new_directory_and_keeps_the_old",
    ),
    Reason.RESET: (
        "services/checkpoints/test_procedures.py",
        "test_a_stateful_reset_begins_at_batch_0_with_an_empty_sink",
    ),
    Reason.PROBED: (
        "services/probes/test_preflight_operations.py",
        "test_a_probe_is_found_by_its_operation",
    ),
    Reason.EXECUTOR_CAME: (
        "services/supervision/test_lost_executors.py",
        "test_each_change_is_one_transition",
    ),
    Reason.EXECUTOR_LOST: (
        "services/supervision/test_lost_executors.py",
        "test_each_change_is_one_transition",
    ),
    Reason.SAME_QUERY: (
        "scenarios/scripts/test_questions.py",
        "test_the_same_takes_over_row_history_and_checkpoint",
    ),
    Reason.OTHER_QUERY: (
        "scenarios/scripts/test_questions.py",
        "test_another_gets_a_row_of_its_own_and_the_old_one_is_kept_as_gone",
    ),
    Reason.SCRIPT_DROPPED: (
        "scenarios/scripts/test_questions.py",
        "test_another_gets_a_row_of_its_own_and_the_old_one_is_kept_as_gone",
    ),
    Reason.OTHER: ("domain/test_reasons.py", "test_a_text_that_is_no_code_is_its_own_words"),
}


def _wait_for_slots(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        stage.query(name)
        stage.start(name)


def _wait_for_memory(stage: Stage) -> None:
    for name in ("a", "b"):
        stage.application(name, memory="4000g")
        stage.query(name, name)
        stage.start(name)


def _defined(stage: Stage) -> None:
    stage.query("q")


def _launched(stage: Stage) -> None:
    stage.query("q")
    stage.start("q")
    stage.look()


def _started(stage: Stage) -> None:
    stage.query("q")
    stage.start("q")
    stage.ready("q")


def _away(stage: Stage) -> None:
    _started(stage)
    Query.objects.update(source_unreachable_since=stage.now)
    stage.look()


def _up(stage: Stage) -> None:
    stage.query("q")
    stage.up("q")


def _idle(stage: Stage) -> None:
    _started(stage)
    stage.launcher.idle(stage.run("q").pk)
    stage.look()


def _stopping(stage: Stage) -> None:
    _up(stage)
    stage.stop("q")


def _restarting(stage: Stage) -> None:
    _up(stage)
    stage.restart("q")


def _stopped(stage: Stage) -> None:
    _stopping(stage)
    stage.launcher.leave("q")
    stage.look()


def _completed(stage: Stage) -> None:
    stage.query("q", trigger={"kind": "available_now"})
    stage.up("q")
    stage.launcher.end_run(stage.run("q").pk)
    stage.look()


NO_BUCKET = RunError("", "x.S3Exception", "The specified bucket does not exist.", "")


def _fail(stage: Stage, error: RunError, times: int, batch: int | None = None) -> None:
    for _ in range(times):
        if not Run.objects.filter(outcome=RunOutcome.OPEN):
            stage.pause("q")
        stage.fail("q", error, batch)


def _failing(error: RunError, times: int, batch: int | None = None) -> Callable[[Stage], None]:
    def story(stage: Stage) -> None:
        _up(stage)
        _fail(stage, error, times, batch)

    return story


def _probed(stage: Stage) -> None:
    _failing(DIVIDE, 3, 3)(stage)
    stage.pause("q")


def _probe_fails(stage: Stage) -> None:
    _probed(stage)
    stage.ready("q")
    stage.fail("q", DIVIDE, 4)


def _regressed(stage: Stage) -> None:
    _failing(DIVIDE, 1, 3)(stage)
    resolve_group(group=FailureGroup.objects.get(), actor="ada", now=stage.now)
    _fail(stage, DIVIDE, 1, 3)


def _locked(stage: Stage) -> None:
    _started(stage)
    stage.launcher.refuse(stage.run("q").pk, "held", holder_pid=4711)
    stage.look()
    if Run.objects.filter(outcome=RunOutcome.OPEN):
        stage.launcher.refuse(stage.run("q").pk, "held", holder_pid=4711)
        stage.look()


def _died(stage: Stage) -> None:
    _up(stage)
    stage.launcher.die("q")
    stage.look()


def _fenced(stage: Stage) -> None:
    _up(stage)
    stage.launcher.die("q", python="FENCED", jvm="FENCED")
    stage.look()


def _no_session(stage: Stage) -> None:
    stage.query("q")
    stage.start("q")
    stage.launcher.session_fails("q", BROKEN_PIPE)
    stage.look()


def _refused(stage: Stage) -> None:
    stage.query("q")
    stage.launcher.refusal = "No Java was found."
    stage.start("q")


def _replaced(stage: Stage) -> None:
    _up(stage)
    application = stage.row("q").application
    request_application_restart(application=application, actor="ada", now=stage.now)
    stage.settle()
    stage.launcher.leave("q")
    stage.look()


def _scope(stage: Stage) -> None:
    stage.application("app", failure_scope="application")
    for name in ("q", "neighbour"):
        stage.query(name, "app")
        stage.start(name)
    stage.ready("app")
    for name in ("q", "neighbour"):
        stage.commit(name)
    stage.fail("q", BROKEN_PIPE)
    assert stage.row("neighbour").phase_reason == Reason.FAILURE_SCOPE


def _deleted(stage: Stage) -> None:
    stage.query("q")
    archive_query(query=stage.row("q"), actor="ada", now=stage.now)


def _script(story: Callable[[ScriptStage], None]) -> Callable[[Stage], None]:
    def told(_: Stage) -> None:
        stage = ScriptStage()
        stage.running("counts")
        story(stage)
        stage.look("job")

    return told


STORIES: dict[Reason, Callable[[Stage], None]] = {
    Reason.NEVER_STARTED: _defined,
    Reason.ASKED_START: _started,
    Reason.ASKED_STOP: _stopping,
    Reason.ASKED_RESTART: _restarting,
    Reason.WAITS_SLOT: _wait_for_slots,
    Reason.WAITS_MEMORY: _wait_for_memory,
    Reason.WAITS_DRIVER: _launched,
    Reason.WAITS_LOCK: _locked,
    Reason.WAITS_COMMIT: _started,
    Reason.WAITS_SOURCE: _away,
    Reason.COMMITTED: _up,
    Reason.IDLE: _idle,
    Reason.STOPPED: _stopped,
    Reason.COMPLETED: _completed,
    Reason.FAILED_RETRY: _failing(BROKEN_PIPE, 2),
    Reason.FAILED_POISON: _failing(DIVIDE, 3, 3),
    Reason.FAILED_REPEATED: _failing(NO_BUCKET, 3),
    Reason.FAILED_FATAL: _failing(NO_SUCH_SOURCE, 1),
    Reason.DRIVER_DIED: _died,
    Reason.RETRY_DUE: _failing(BROKEN_PIPE, 1),
    Reason.REGRESSED: _regressed,
    Reason.PROBE: _probed,
    Reason.PROBE_FAILED: _probe_fails,
    Reason.ARCHIVED: _deleted,
    Reason.LAUNCHED: _started,
    Reason.NOT_LAUNCHED: _refused,
    Reason.NOT_WANTED: _stopped,
    Reason.REPLACED: _replaced,
    Reason.FENCED: _fenced,
    Reason.FAILURE_SCOPE: _scope,
    Reason.SESSION_FAILED: _no_session,
    Reason.SCRIPT_STARTED: _script(lambda stage: None),
    Reason.SCRIPT_FAILED: _script(lambda stage: stage.fail_script(BROKEN_PIPE)),
    Reason.SCRIPT_ENDED: _script(lambda stage: stage.launcher.script_completes("job")),
    Reason.SCRIPT_ASKS: _script(lambda stage: stage.launcher.asks_while_ending("job", "new", 1)),
}


def _shown() -> set[str]:
    """Return every reason that a row has now, or that the history holds."""
    return {
        *Transition.objects.values_list("reason", flat=True),
        *Query.objects.values_list("phase_reason", flat=True),
        *Script.objects.values_list("phase_reason", flat=True),
        *Run.objects.values_list("cause", flat=True),
        *Driver.objects.values_list("state_reason", flat=True),
    }


@pytest.mark.parametrize("reason", [each for each in Reason if each], ids=lambda one: one.name)
def test_a_reason_happens(reason: Reason, stage: Stage) -> None:
    if reason in ELSEWHERE:
        file, test = ELSEWHERE[reason]
        found = [
            node
            for node in ast.walk(ast.parse((TESTS / file).read_text()))
            if isinstance(node, ast.FunctionDef) and node.name == test
        ]
        assert found, f"{file} has no {test}"
        assert reason.name in ast.unparse(found[0]), f"{test} does not assert {reason.name}"
        return
    assert reason in STORIES, f"no test makes {reason.name} happen: give it a story"
    STORIES[reason](stage)
    assert reason in _shown()


def test_an_exception_in_a_script_is_not_the_death_of_its_driver() -> None:
    job = ScriptStage()
    job.running("counts")
    for _ in range(2):
        job.fail_script(BROKEN_PIPE)
        if job.script.phase == "BACKOFF":
            break
        job.wait(2)
        job.ready("job")
    assert job.driver("job").state_reason == Reason.SCRIPT_FAILED
    assert job.row("job/counts").phase_reason == Reason.SCRIPT_FAILED
    assert Reason.DRIVER_DIED not in _shown()


def test_the_queries_of_a_script_that_is_stopped_do_not_say_that_they_restart() -> None:
    job = ScriptStage()
    job.running("counts")
    job.stop_script()
    row = job.row("job/counts")
    assert (row.phase_reason, "restarts" in row.phase_detail.text) == (Reason.ASKED_STOP, False)
    assert Reason.ASKED_RESTART not in _shown()


def test_a_start_during_a_stop_is_not_a_restart(stage: Stage) -> None:
    _stopping(stage)
    stage.start("q")
    assert stage.row("q").phase_reason == Reason.ASKED_START
    stage.launcher.leave("q")
    stage.look()
    stage.wait(2)
    assert stage.run("q").cause == Reason.ASKED_START
    assert stage.run("q").actor == "olga"
