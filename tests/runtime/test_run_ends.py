"""A run of the driver holds its checkpoint until nothing of it is left; Spark's part is played."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from queries.domain.protocol import AssignmentEntry, Hangs, RunState, RunStatus, Want
from queries.runtime import build
from queries.runtime import run as runs
from queries.runtime.checkpoints.locks import CheckpointLock, Locks
from queries.runtime.checkpoints.owners import CheckpointRefused, Fence, Owners, Ownership
from queries.runtime.code.stream_writers import Callbacks
from queries.runtime.failures.error_capture import ExitInUsersCode, StepFailed, from_python
from queries.runtime.liveness import ProgressTracker
from queries.runtime.run import DriverContext, QueryRun
from queries.runtime.status_report import StatusFile
from queries.secret_references import References

LIMIT_S = 30


@dataclass
class Query:
    """Spark's query, as the driver sees it: `stop()` says that it is over, whatever its thread."""

    thread_alive: bool = True
    active: bool = True
    thread_seen: bool = True
    error: Exception | None = None
    stops: int = 0

    def runId(self) -> Any:
        return SimpleNamespace(toString=lambda: "r")

    def isActive(self) -> bool:
        return self.active

    def stop(self) -> None:
        self.active = False
        self.stops += 1
        if self.thread_alive:
            raise TimeoutError("the stream thread was last executing users' code")

    def streamingQuery(self) -> Any:
        return SimpleNamespace(queryExecutionThread=lambda: self)

    def isAlive(self) -> bool:
        if not self.thread_seen:
            raise RuntimeError("no answer")
        return self.thread_alive

    def exception(self) -> Any:
        return SimpleNamespace(isDefined=lambda: self.error is not None, get=lambda: self.error)

    def lastProgress(self) -> None:
        return None


@dataclass
class Scene:
    """One run, and what it holds."""

    folder: Path
    query: Query = field(default_factory=Query)
    held: list[str] = field(default_factory=list)
    callbacks: Callbacks = field(default_factory=Callbacks)
    built: Callable[[], None] = lambda: None
    run: QueryRun | None = None
    taken_by: int | None = None

    def __post_init__(self) -> None:
        self.board = StatusFile(self.folder, 1, lambda: None, lambda said: said)

    def begin(self, start_deadline_s: float | None = None) -> None:
        nothing: Any = SimpleNamespace(
            query_started=lambda **_: None,
            query_ended=lambda **_: None,
            start_failed=lambda **_: None,
            terminated=lambda *_: None,
        )
        session: Any = SimpleNamespace(
            sparkContext=SimpleNamespace(setLocalProperty=lambda *_: None), _jvm=None
        )
        stopped = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
        around = DriverContext(
            spark=SimpleNamespace(sparkContext=SimpleNamespace(_jsc=stopped)),
            sessions=SimpleNamespace(open=lambda *_: session),  # type: ignore[arg-type]
            locks=self,  # type: ignore[arg-type]
            board=self.board,
            telemetry=nothing,
            references=References(env_allowlist=(), secrets_dir=""),
            jvm_ended=threading.Event(),
            spark_stopped=threading.Event(),
            start_deadline_s=start_deadline_s,
        )
        place = f"file://{self.folder}/checkpoint"
        self.run = QueryRun(AssignmentEntry(1, "delays", 1, 1, {}, place, "", Want.RUN), around)

    def take(self, location: str, **_: Any) -> Any:
        if self.taken_by is not None:
            raise CheckpointRefused("own", f"{location} is held", 4711, run=self.taken_by)
        self.held.append(location)
        return CheckpointLock(location, 1, 1)

    def release(self, held: Any) -> None:
        self.held.remove(held.location)

    def still_active(self, told: str) -> CheckpointRefused:
        return Locks.still_active(SimpleNamespace(_jvm_pid=4711), told)  # type: ignore[arg-type]

    def writer(self, *_: Any, callbacks: Callbacks, **__: Any) -> Any:
        self.callbacks = callbacks
        self.built()
        # Its frame has no plan: it reads no Kafka topics.
        started = SimpleNamespace(runId="r", id="i", _jsq=self.query)
        return SimpleNamespace(start=lambda: started, _df=SimpleNamespace())

    def until(self, right: Callable[[RunStatus], bool]) -> RunStatus:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            status = self.board.read(1)
            assert status is not None
            if right(status):
                return status
            time.sleep(0.01)
        raise AssertionError(f"it stays {self.board.read(1)}")

    def ends(self) -> RunStatus:
        """Return the status once the run's thread has ended."""
        assert self.run is not None
        self.run.join(LIMIT_S)
        assert not self.run.working
        status = self.board.read(1)
        assert status is not None
        return status

    def stop(self) -> None:
        assert self.run is not None
        self.run.request_end(Want.STOP)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    made = Scene(tmp_path)
    monkeypatch.setattr(build, "writer", made.writer)
    monkeypatch.setattr(runs, "END_S", 0.2)
    monkeypatch.setattr(runs, "STOP_AGAIN_S", 0.1)
    yield made
    made.query.thread_alive, made.query.active, made.query.thread_seen = False, False, True
    if made.run is not None:
        made.run.join(LIMIT_S)


def _started(status: RunStatus) -> bool:
    return status.started_at is not None


def test_a_stop_that_times_out_releases_nothing_and_is_asked_again(scene: Scene) -> None:
    scene.begin()
    scene.until(_started)
    scene.stop()
    status = scene.until(lambda status: bool(status.hangs))
    assert (status.state, status.hangs) == (RunState.STOPPING, Hangs.STOP)
    scene.until(lambda _: scene.query.stops >= 2)
    assert scene.held
    assert scene.run is not None
    assert scene.run.working
    scene.query.thread_alive = False
    status = scene.ends()
    assert (status.state, status.hangs, scene.held) == (RunState.ENDED, Hangs.NOTHING, [])


def test_a_checkpoint_is_held_while_a_call_of_foreach_batch_goes_on(scene: Scene) -> None:
    going, entered = threading.Event(), threading.Event()
    scene.begin()
    scene.until(_started)

    def take(batch: object, number: int) -> None:
        entered.set()
        going.wait(LIMIT_S)

    thread = threading.Thread(target=scene.callbacks.counted(take), args=(None, 3))
    thread.start()
    assert entered.wait(LIMIT_S)
    scene.query.thread_alive = False
    scene.stop()
    status = scene.until(lambda status: bool(status.hangs))
    assert (status.state, scene.callbacks.open, len(scene.held)) == (RunState.STOPPING, 1, 1)
    going.set()
    thread.join(LIMIT_S)
    assert (scene.ends().state, scene.held) == (RunState.ENDED, [])


def test_a_thread_that_cannot_be_seen_is_not_taken_for_gone(scene: Scene) -> None:
    scene.begin()
    scene.until(_started)
    scene.query.thread_seen = False
    scene.query.thread_alive = False
    scene.stop()
    scene.until(lambda status: status.hangs is Hangs.STOP)
    assert scene.held
    scene.query.thread_seen = True
    assert (scene.ends().state, scene.held) == (RunState.ENDED, [])


def test_a_failure_is_told_while_its_thread_hangs_and_the_checkpoint_is_held(scene: Scene) -> None:
    scene.begin()
    scene.until(_started)
    scene.query.error = ConnectionRefusedError("no answer")
    scene.query.active = False
    status = scene.until(lambda status: status.state is RunState.FAILED)
    assert (status.hangs, len(scene.held)) == (Hangs.STOP, 1)
    scene.query.thread_alive = False
    status = scene.ends()
    assert (status.state, status.hangs, scene.held) == (RunState.FAILED, Hangs.NOTHING, [])


def test_a_query_that_can_no_longer_be_watched_is_stopped_and_seen_to_its_end(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_: object) -> None:
        raise OSError("the checkpoint cannot be read")

    scene.begin()
    scene.until(_started)
    monkeypatch.setattr(ProgressTracker, "look", unreadable)
    status = scene.until(lambda status: status.state is RunState.FAILED)
    assert status.error is not None
    assert "cannot be read" in status.error.root_cause
    assert (status.hangs, len(scene.held)) == (Hangs.STOP, 1)
    scene.query.thread_alive = False
    assert (scene.ends().hangs, scene.held) == (Hangs.NOTHING, [])


@pytest.mark.parametrize("left", [SystemExit(0), KeyboardInterrupt(), GeneratorExit()])
def test_an_exit_in_users_code_fails_the_run_at_once(scene: Scene, left: BaseException) -> None:
    def leaves() -> None:
        raise left

    scene.built = leaves
    scene.begin()
    status = scene.ends()
    assert status.state is RunState.FAILED
    assert status.error is not None
    assert status.error.type_name == type(left).__name__
    assert scene.held == []


def test_a_query_that_is_still_active_in_the_driver_is_named_as_that(scene: Scene) -> None:
    said = "Cannot start query with name delays as a query with that name is already active"

    def active() -> None:
        raise ValueError(f"{said} in this SparkSession")

    scene.built = active
    scene.begin()
    status = scene.ends()
    assert status.error is not None
    assert (status.state, status.error.refused) == (RunState.REFUSED, "own")
    assert status.error.holder_pid == 4711
    assert status.error.root_cause.startswith("An earlier run of the query has not ended")
    assert scene.held == []


def test_a_start_that_returns_too_late_is_stopped_and_its_lock_is_freed(scene: Scene) -> None:
    going = threading.Event()

    def waits() -> None:
        going.wait(LIMIT_S)

    scene.built = waits
    scene.begin(start_deadline_s=0.05)
    assert scene.run is not None
    time.sleep(0.1)  # longer than the limit
    scene.run.check_start()
    status = scene.board.read(1)
    assert status is not None
    assert (status.state, status.hangs) == (RunState.FAILED, Hangs.START)
    assert scene.held
    scene.query.thread_alive = False
    going.set()
    status = scene.ends()
    assert (status.state, status.hangs, scene.held) == (RunState.FAILED, Hangs.NOTHING, [])


def test_a_checkpoint_on_no_local_file_system_is_held_by_one_run_of_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Locks, "_own", lambda *_: None)  # the owner's file is another story
    java = MagicMock()
    fence = Fence(java, MagicMock(), Path("heartbeat"), watch_s=2.0)
    locks = Locks(java, 4711, installation="here", driver=1, host="one", fence=fence)
    held = locks.take("s3a://bucket/checkpoints/delays", run=41, epoch=1)
    assert held.key is None
    with pytest.raises(CheckpointRefused, match="held by run 41 of the same driver") as refused:
        locks.take("s3a://bucket/checkpoints/delays", run=42, epoch=2)
    assert (refused.value.run, refused.value.error.refused) == (41, "own")
    locks.release(held)
    locks.release(held)
    assert locks.take("s3a://bucket/checkpoints/delays", run=43, epoch=3).run == 43


@pytest.mark.guarantee("G-FENCE-4")
@pytest.mark.parametrize("fenced", [True, False])
def test_without_our_classes_no_run_starts_on_a_checkpoint_that_is_not_local(
    fenced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned: list[str] = []

    def own(owners: Owners, place: str, *rest: Any, **more: Any) -> Ownership:
        owned.append(place)
        return Ownership(1)

    monkeypatch.setattr(Owners, "own", own)
    java = MagicMock()
    because = "The disk is full"
    fence = Fence(java, MagicMock(), Path("heartbeat"), watch_s=2.0, missing=because)
    locks = Locks(
        java, 4711, installation="here", driver=1, host="one", fence=fence if fenced else None
    )
    with pytest.raises(CheckpointRefused) as refused:
        locks.take("s3a://bucket/checkpoints/delays", run=41, epoch=1)
    assert (because if fenced else "nothing watches it") in str(refused.value)
    # Its own process is named as the holder, so that supervision replaces it if it is idle.
    error = refused.value.error
    assert (error.refused, error.holder_pid, owned) == ("own", 4711, [])


def test_a_run_that_holds_the_checkpoint_and_hangs_is_named_by_the_next(scene: Scene) -> None:
    held = RunStatus(41, 7, RunState.FAILED, hangs=Hangs.START)
    scene.board.add(held)
    scene.taken_by = 41
    scene.begin()
    status = scene.ends()
    assert status.error is not None
    assert (status.state, status.error.refused) == (RunState.REFUSED, "own")
    said = "An earlier run is still being built by a thread of this driver that does not end"
    assert status.error.message.startswith(said)
    assert status.error.message.endswith("Only a new driver can free it.")


@pytest.mark.parametrize("spec", ["leaves_at_import:build", "leaves_at_import:gone"])
def test_a_module_that_leaves_while_it_is_imported_is_named_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    (tmp_path / "leaves_at_import.py").write_text("import sys\n\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    references = References(env_allowlist=(), secrets_dir="")
    with pytest.raises(StepFailed) as failed:
        build.rows(None, {"kind": "python", "function": spec}, references=references)
    told = from_python(failed.value, lambda text: text)
    assert told.error_class == build.USER_CODE
    assert told.root_cause == (
        f"function '{spec}': SystemExit(0) was raised in leaves_at_import.py, line 3"
    )
    assert "Traceback" in told.message


def test_what_leaves_a_callback_is_an_error_that_names_its_line() -> None:
    def leaves(batch: object, number: int) -> None:
        raise SystemExit(f"no more after {number}")

    counted = Callbacks().counted(leaves)
    with pytest.raises(ExitInUsersCode, match=r"SystemExit\('no more after 3'\) was raised in "):
        counted(None, 3)
    with pytest.raises(ZeroDivisionError):
        Callbacks().counted(lambda *_: 1 / 0)(None, 3)


def test_calls_are_counted_for_the_run_whose_thread_builds_them() -> None:
    class Writer:
        def foreachBatch(self, func: Any) -> Any:
            return func

    def take(batch: object, number: int) -> None: ...

    build.count_callbacks(Writer)
    assert Writer().foreachBatch(take) is take
    callbacks = Callbacks()
    build._building.callbacks = callbacks
    try:
        counted = Writer().foreachBatch(take)
    finally:
        del build._building.callbacks
    assert counted is not take
    assert counted.__name__ == "take"
