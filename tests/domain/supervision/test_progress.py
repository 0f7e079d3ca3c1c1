"""A start that advances is left alone however slow its host is; one that is stuck is given up."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from queries.domain.hosts import Pressure, waiting_share
from queries.domain.protocol import DriverStatus, ExitReport, RunState, RunStatus
from queries.domain.reasons import NOTHING
from queries.domain.states import Desired, DriverState, Phase, Reason
from queries.domain.supervision.decide import decide
from queries.domain.supervision.decision import DriverAction
from queries.domain.supervision.observation import (
    DriverSeen,
    Liveness,
    Observation,
    QuerySeen,
    RunSeen,
    ScriptSeen,
    Sighting,
    StartMark,
)
from queries.domain.supervision.progress import advanced, waits_for_start
from tests.domain.supervision.seen import NOW, observation

BUSY = Pressure(share=99.4, load=90.4, cores=2)
KILLED = ExitReport("SIGKILL", "SIGKILL", core=False, oom=False, at=NOW.isoformat())


def ago(seconds: float) -> Any:
    """Return the moment that many seconds before now."""
    return NOW - timedelta(seconds=seconds)


def driver(
    *,
    age_s: float = 1000,
    mark: StartMark | None = None,
    cpu_s: float | None = None,
    step: str | None = None,
    ready: bool = False,
    **fields: Any,
) -> DriverSeen:
    """Return a driver that is starting, as seen."""
    status = (
        None if step is None and not ready else DriverStatus(1, 1, "", ready=ready, step=step or "")
    )
    base = DriverSeen(
        id=1,
        epoch=1,
        state=DriverState.STARTING,
        generation=0,
        created_at=ago(age_s),
        sighting=Sighting(Liveness.ALIVE, status=status, cpu_s=cpu_s),
        progress=mark,
    )
    return replace(base, **fields)


def observed(one: DriverSeen | None, run: RunSeen | None = None, **fields: Any) -> Observation:
    """Return an application with one query that should run."""
    query = QuerySeen(
        *(1, "delays", Desired.RUNNING, 1, 1, 0),
        *(Phase.STARTING if run else Phase.PENDING, Reason.NONE, NOTHING),
        run=run,
    )
    return observation(query, driver=one, **fields)


def run_of(age_s: float, **status: Any) -> RunSeen:
    """Return a run that its driver is building; without `status`, the driver does not know it."""
    said = RunStatus(1, 1, RunState.STARTING, **status) if status else None
    return RunSeen(1, 1, 1, ago(age_s), ends_by_itself=False, status=said)


@pytest.mark.parametrize(
    ("one", "moved"),
    [
        (driver(), False),
        (driver(cpu_s=1.9), False),
        (driver(cpu_s=2.0), True),
        (driver(step="JVM"), True),
        (driver(mark=StartMark(ago(5), 40.0, "JVM"), cpu_s=41.9, step="JVM"), False),
        (driver(mark=StartMark(ago(5), 40.0, "JVM"), cpu_s=42.0, step="JVM"), True),
        (driver(mark=StartMark(ago(5), 40.0, "JVM"), step="session"), True),
        (driver(mark=StartMark(ago(5), 40.0, "JVM")), False),
        (driver(mark=StartMark(ago(5), 40.0, "x" * 40), step="x" * 99), False),
    ],
)
def test_a_start_advances_with_each_step_and_two_seconds_of_processor_time(
    one: DriverSeen, moved: bool
) -> None:
    assert (advanced(one, NOW).at == NOW) is moved


@pytest.mark.parametrize(
    ("one", "action", "detail"),
    [
        (driver(mark=StartMark(ago(179))), DriverAction.NOTHING, "session is starting"),
        (driver(mark=StartMark(ago(181), 9.0), cpu_s=11.0), DriverAction.NOTHING, "is starting"),
        (driver(mark=StartMark(ago(181), 9.0), cpu_s=10.9), DriverAction.KILL, "for 180 s"),
        (driver(age_s=1801, mark=StartMark(ago(1))), DriverAction.KILL, "within 1800 s"),
        (driver(took_over_at=ago(179)), DriverAction.NOTHING, "is starting"),
    ],
)
def test_what_happens_to_a_driver_that_starts(
    one: DriverSeen, action: DriverAction, detail: str
) -> None:
    decision = decide(observed(one, run_of(170)), NOW)
    assert decision.driver.action is action
    assert detail in decision.queries[0].detail.text
    assert decision.driver.progress == advanced(one, NOW)


@pytest.mark.parametrize(
    ("sighting", "action", "detail"),
    [
        # However long a pod waits for a node or an image, its start is not stuck.
        (Sighting(Liveness.SPAWNING, pending=""), DriverAction.NOTHING, "pod is being started"),
        (
            Sighting(Liveness.SPAWNING, pending="No node can take the pod: too little memory."),
            DriverAction.NOTHING,
            "pod has not started. No node can take the pod: too little memory.",
        ),
        (Sighting(Liveness.ALIVE, began_at=ago(179)), DriverAction.NOTHING, "session is starting"),
        (Sighting(Liveness.ALIVE, began_at=ago(181)), DriverAction.KILL, "for 180 s"),
    ],
)
def test_the_start_of_a_pod_begins_when_a_node_runs_it(
    sighting: Sighting, action: DriverAction, detail: str
) -> None:
    decision = decide(observed(driver(age_s=5000, sighting=sighting), run_of(170)), NOW)
    assert decision.driver.action is action
    assert detail in decision.queries[0].detail.text


def test_a_pod_that_does_not_run_yet_is_not_waited_for_when_it_must_end() -> None:
    waits = Sighting(Liveness.SPAWNING, pending="No node can take the pod: too little memory.")
    for sighting, action in (
        (waits, DriverAction.TERMINATE),
        (Sighting(Liveness.ALIVE), DriverAction.NOTHING),
    ):
        ending = driver(age_s=5, sighting=sighting, end_wanted=Reason.REPLACED, end_wanted_at=NOW)
        assert decide(observed(ending, run_of(5)), NOW).driver.action is action


def test_the_kubelets_word_on_a_pod_is_the_failure_of_its_driver() -> None:
    seen = Sighting(Liveness.EXITED, exit=KILLED, ended="The driver's pod was evicted.")
    decision = decide(observed(driver(sighting=seen), run_of(170)), NOW)
    assert decision.driver.fault is not None
    assert decision.driver.fault.classified.title == "The driver's pod was evicted."


@pytest.mark.parametrize(
    ("run", "mark", "ending"),
    [
        (run_of(181, advanced_at=ago(179).isoformat()), None, False),
        (run_of(181, advanced_at=ago(181).isoformat()), None, True),
        (run_of(1801, advanced_at=ago(1).isoformat()), None, True),
        (run_of(181, advanced_at="soon"), None, True),
        (run_of(181, advanced_at=ago(-5000).isoformat()), None, False),
        (run_of(1801, advanced_at=ago(-5000).isoformat()), None, True),
        (run_of(181), StartMark(ago(3)), False),
        (run_of(181), StartMark(ago(999)), True),
    ],
)
def test_what_happens_to_a_query_that_starts_in_its_driver(
    run: RunSeen, mark: StartMark | None, ending: bool
) -> None:
    [choice] = decide(observed(driver(mark=mark, step="", ready=True), run), NOW).queries
    assert (choice.reason is Reason.START_TIMED_OUT) is ending
    limit = "within 1800 s" if run.created_at == ago(1801) else "did not advance for 180 s"
    assert (limit in choice.detail.text) is ending


@pytest.mark.parametrize(
    ("run", "mark", "text"),
    [
        (run_of(5), None, "Its driver's Spark session is starting. This host is busy, so this"),
        (
            run_of(5),
            StartMark(ago(181)),
            "for 180 s; the driver is being stopped, and the start wi",
        ),
        (
            run_of(5),
            StartMark(ago(181)),
            "This host was busy: load 90 on 2 cores, a program waited",
        ),
    ],
)
def test_a_busy_host_is_named(run: RunSeen, mark: StartMark | None, text: str) -> None:
    one = driver(age_s=100 if mark is None else 1000, mark=mark)
    [choice] = decide(observed(one, run, pressure=BUSY), NOW).queries
    assert text in choice.detail.text


@pytest.mark.parametrize(
    ("one", "pressure", "said"),
    [
        (driver(mark=StartMark(ago(181))), None, "Its start did not advance for 180 s."),
        (driver(age_s=1801), None, "Its start took longer than 1800 s."),
        (
            driver(mark=StartMark(ago(181))),
            BUSY,
            "180 s. This host was busy: load 90 on 2 cores, a",
        ),
    ],
)
def test_the_failure_of_a_driver_says_why_its_start_was_given_up(
    one: DriverSeen, pressure: Pressure | None, said: str
) -> None:
    dead = replace(
        one,
        sighting=Sighting(Liveness.EXITED, exit=KILLED),
        end_wanted=Reason.START_TIMED_OUT,
        end_wanted_at=ago(3),
    )
    fault = decide(observed(dead, run_of(900), pressure=pressure), NOW).driver.fault
    assert fault is not None
    assert fault.error is not None
    assert said in fault.error.root_cause


@pytest.mark.parametrize(
    ("ready", "said"), [(False, "was not up in time"), (True, "came up after its start")]
)
def test_a_session_that_came_up_too_late_is_not_one_that_was_never_up(
    ready: bool, said: str
) -> None:
    one = driver(mark=StartMark(ago(181)))
    status = DriverStatus(1, 1, "", ready=ready)
    dead = replace(
        one,
        sighting=Sighting(Liveness.EXITED, exit=KILLED, status=status),
        end_wanted=Reason.START_TIMED_OUT,
        end_wanted_at=ago(3),
    )
    fault = decide(observed(dead, run_of(900)), NOW).driver.fault
    assert fault is not None
    assert fault.error is not None
    assert f"The driver's Spark session {said}" in fault.error.root_cause


def test_a_script_says_why_its_start_was_given_up() -> None:
    script = ScriptSeen(Desired.RUNNING, Phase.STARTING, Reason.NONE)
    stuck = observed(driver(mark=StartMark(ago(181))), queries=(), script=script)
    said = decide(stuck, NOW).script
    assert said is not None
    assert (said.phase, said.reason) == (Phase.STOPPING, Reason.START_TIMED_OUT)
    assert "did not advance for 180 s" in said.detail.text


@pytest.mark.parametrize(
    ("phase", "reason", "calm", "busy"),
    [
        (Phase.STARTING, Reason.WAITS_DRIVER, True, True),
        (Phase.STARTING, Reason.WAITS_COMMIT, False, True),
        (Phase.STARTING, Reason.WAITS_SOURCE, False, False),
        (Phase.PENDING, Reason.WAITS_SLOT, True, True),
        (Phase.PENDING, Reason.WAITS_MEMORY, False, False),
        (Phase.PENDING, Reason.WAITS_DRIVER, False, False),
        (Phase.STOPPING, Reason.START_TIMED_OUT, True, True),
        (Phase.STOPPING, Reason.ASKED_STOP, False, False),
    ],
)
def test_what_waits_for_a_start(phase: Phase, reason: Reason, calm: bool, busy: bool) -> None:
    assert waits_for_start(phase, reason, busy=False) is calm
    assert waits_for_start(phase, reason, busy=True) is busy


@pytest.mark.parametrize(
    ("pressure", "high", "figure"),
    [
        (Pressure(79.9, 90.0, 2), False, "load 90 on 2 cores, a program waited for a processor 80"),
        (Pressure(80.0, 1.0, 1), True, "load 1 on 1 core, a program waited for a processor 80 %"),
        (Pressure(None, 5.9, 2), False, "load 6 on 2 cores"),
        (Pressure(None, 6.0, 2), True, "load 6 on 2 cores"),
    ],
)
def test_when_a_host_is_busy(pressure: Pressure, high: bool, figure: str) -> None:
    assert pressure.is_high is high
    assert pressure.figure.startswith(figure)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("some avg10=6.95 avg60=18.30 avg300=13.24 total=8410709381\nfull avg10=0.00\n", 18.3),
        ("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", 0.0),
        ("full avg10=0.00 avg60=7.00 avg300=0.00 total=0\n", None),
        ("some avg10=6.95 avg60=much\n", None),
        ("\nsome\n", None),
        ("", None),
    ],
)
def test_what_the_kernel_says_about_waiting_programs(text: str, share: float | None) -> None:
    assert waiting_share(text) == share
