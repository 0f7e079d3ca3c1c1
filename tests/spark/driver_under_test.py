"""A real driver of a test's own: launched, assigned and looked at as supervision does it."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from headgate_ground.files import lock_holder
from queries.domain.checkpoints.ownership import lock_file
from queries.domain.hosts import Mode, choose
from queries.domain.protocol import (
    IDENT,
    Assignment,
    AssignmentEntry,
    DriverSpec,
    DriverStatus,
    Ident,
    RunState,
    RunStatus,
    Want,
)
from queries.domain.states import Reason
from queries.domain.supervision.observation import Liveness, Sighting
from queries.launchers.process.launcher import LocalProcessLauncher
from tests import pieces

T = TypeVar("T")

LIMIT_S = 300.0  # generous: a loaded machine must not fail a test
#: Spark 3.5 divides by zero without an error unless it is told otherwise.
STRICT = {"spark.sql.ansi.enabled": "true"}
#: Of a run that changes no more.
FINAL = (RunState.ENDED, RunState.FAILED, RunState.REFUSED)


def wait_for(look: Callable[[], T | None], what: str, limit_s: float = LIMIT_S) -> T:
    """Return what `look` finds, once it finds something."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.15)
    raise AssertionError(f"{what}: not within {limit_s} s")


def holder(location: str) -> int | None:
    """Return the pid that holds a checkpoint's lock, or None."""
    path = lock_file(location)
    return None if path is None else lock_holder(Path(path))


def rate_query(*, sql: str = "SELECT value FROM numbers", **changes: Any) -> dict[str, Any]:
    """Return a query over Spark's rate source into the noop sink."""
    return {
        "kind": "sql",
        "sources": [{"name": "numbers", "format": "rate", "options": {"rowsPerSecond": "5"}}],
        "sql": sql,
        "sink": {"format": "noop"},
        "trigger": {"kind": "processing_time", "interval": "500 milliseconds"},
        **changes,
    }


class DriverUnderTest:
    """One driver and what is assigned to it."""

    def __init__(
        self,
        home: Path,
        *,
        application: str = "app",
        epoch: int = 1,
        walls: Mode = Mode.NEITHER,
    ) -> None:
        self.home = home
        self.launcher = LocalProcessLauncher(
            home / "drivers", home / "code", isolation=lambda: choose(walls)
        )
        self.application = application
        self.epoch = epoch
        self.entries: dict[int, AssignmentEntry] = {}
        self.generation = 0
        self.spec = DriverSpec(
            driver=epoch,
            epoch=epoch,
            application=application,
            installation="here",
            host="test-host",
            master="local[2]",
            memory="512m",
            conf={"spark.sql.shuffle.partitions": "2", **STRICT},
            env={},
            code_roots=(),
            code_sha256="",
            scheduler_mode="FAIR",
            listeners=(),
            redis_url="redis://127.0.0.1:9/0",  # nobody there: it must not matter
            stream="events",
            spark=pieces.spark(),
            stop_timeout_s=20,
        )

    @property
    def directory(self) -> Path:
        return self.launcher.directory(self.application, self.epoch)

    def launch(self, pools: str = "<allocations/>", **changes: Any) -> "DriverUnderTest":
        self.spec = replace(self.spec, **changes)
        self.launcher.launch(self.spec, self._assignment(), pools)
        return self

    def ready(self) -> DriverStatus:
        def look() -> DriverStatus | None:
            seen = self.sight()
            assert seen.liveness is not Liveness.EXITED, seen.exit
            return seen.status if seen.status and seen.status.ready else None

        return wait_for(look, "the driver is ready")

    def start(self, run: int, spec: dict[str, Any], **changes: Any) -> None:
        """Assign a run; its query's number is the run's without the last digit."""
        entry = AssignmentEntry(
            query=run // 10,
            name=f"q{run // 10}",
            run=run,
            epoch=100 + run,
            spec=spec,
            checkpoint=f"file://{self.home}/checkpoints/q{run // 10}",
            pool="",
            want=Want.RUN,
        )
        self.entries[run] = replace(entry, **changes)
        self.assign()

    def request_end(self, run: int, want: Want, deadline: str | None = None) -> None:
        self.entries[run] = replace(self.entries[run], want=want, deadline=deadline)
        self.assign()

    def drop(self, run: int) -> None:
        del self.entries[run]
        self.assign()

    def idle(self) -> bool:
        """Return whether it lives, and nothing is assigned to it: another story may have it."""
        return not self.entries and self.sight().liveness is Liveness.ALIVE

    def rest(self) -> None:
        """Stop and drop every run, and see the driver forget them: others share it."""
        if self.entries:
            for run, entry in self.entries.items():
                self.entries[run] = replace(entry, want=Want.STOP)
            self.assign()
            self._wait_runs(lambda states: all(states.get(run) in FINAL for run in self.entries))
            self.entries.clear()
            self.assign()
        self._wait_runs(lambda states: not states)

    def assign(self, *, end: bool = False) -> None:
        self.generation += 1
        self.launcher.assign(self.application, replace(self._assignment(), end=end))

    def sight(self, locations: tuple[str, ...] = ()) -> Sighting:
        return self.launcher.sight(self.application, self.epoch, locations=locations)

    def run(self, run: int) -> RunStatus | None:
        status = self.sight().status
        return next((line for line in status.runs if line.run == run), None) if status else None

    def wait_run(self, run: int, *states: RunState, limit_s: float = LIMIT_S) -> RunStatus:
        seen: list[RunStatus | None] = []

        def look() -> RunStatus | None:
            seen[:] = [self.run(run)]
            return seen[0] if seen[0] is not None and seen[0].state in states else None

        try:
            return wait_for(look, f"run {run} is {states}", limit_s)
        except AssertionError as error:
            log = self.launcher.log_tail(self.application, self.epoch, lines=40)
            raise AssertionError(f"{error}; it is {seen}\n{log}") from error

    def wait_exit(self) -> Sighting:
        return wait_for(
            lambda: seen if (seen := self.sight()).liveness is Liveness.EXITED else None,
            "the driver has left",
        )

    def ident(self) -> Ident:
        return Ident.loads((self.directory / "control" / IDENT).read_text())

    def kill_python(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.ident().pid, number)

    def end(self) -> None:
        """Leave nothing running."""
        self.launcher.kill(self.application, self.epoch, Reason.GIVEN_UP)
        if self.directory.exists():
            wait_for(
                lambda: self.sight().liveness in (Liveness.EXITED, Liveness.GONE, Liveness.ABSENT),
                "the shim has reported",
            )

    def _wait_runs(self, look: Callable[[dict[int, RunState]], bool]) -> None:
        """Wait for the states of the driver's runs; a driver that has left has none."""

        def done() -> bool:
            seen = self.sight()
            if seen.liveness not in (Liveness.SPAWNING, Liveness.ALIVE):
                return True
            runs = seen.status.runs if seen.status else ()
            return look({line.run: line.state for line in runs})

        wait_for(done, f"the driver rests; it has {list(self.entries)}")

    def _assignment(self) -> Assignment:
        return Assignment(self.generation, self.epoch, tuple(self.entries.values()))


def write_rows(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """Put a JSON file into a folder that a query reads, whole."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{name}"
    draft.write_text("\n".join(json.dumps(row) for row in rows))
    draft.rename(folder / name)
