"""A driver that runs a script of a test's, the rows that a control plane would give it included."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from queries.domain.protocol import (
    DriverStatus,
    FoundQuery,
    KnownQuery,
    RunState,
    RunStatus,
    ScriptJob,
    ScriptState,
)
from queries.domain.supervision.observation import Liveness
from tests import pieces
from tests.spark.driver_under_test import DriverUnderTest, wait_for


class ScriptUnderTest(DriverUnderTest):
    """One driver of a script."""

    def launch_script(
        self, folder: Path, file: str, *arguments: str, module: str = "", **job: Any
    ) -> "ScriptUnderTest":
        """Launch a driver that runs a file of the folder, or a module of it."""
        roots, digest = self.launcher.freeze_code((str(folder),))
        script = ScriptJob(
            file=f"{roots[0]}/{file}" if file else "",
            module=module,
            arguments=arguments,
            folder=str(self.home / "checkpoints/.work"),
            checkpoints=f"file://{self.home}/checkpoints",
            **job,
        )
        given = (str(self.home / "checkpoints"),)
        self.launch(code_roots=roots, code_sha256=digest, script=script, folders=given)
        return self

    def again(self) -> "ScriptUnderTest":
        """Return the next driver of the same script, as supervision launches it."""
        status = self.status()
        known = tuple(
            KnownQuery(one.number, one.identity, one.asked, one.location) for one in status.found
        )
        after = ScriptUnderTest(self.home, application=self.application, epoch=self.epoch + 1)
        assert self.spec.script is not None
        spec = replace(self.spec, driver=after.epoch, epoch=after.epoch)
        after.spec = replace(spec, script=replace(self.spec.script, known=known))
        after.launch()
        return after

    def status(self) -> DriverStatus:
        """Return what the driver reports."""
        status = self.sight().status
        assert status is not None, self.log()
        return status

    def found(self, name: str) -> FoundQuery | None:
        """Return the newest query that is known by this name."""
        status = self.sight().status
        matching = [one for one in status.found if one.name == name] if status else []
        return matching[-1] if matching else None

    def line(self, name: str) -> RunStatus | None:
        """Return the newest line of the query of this name."""
        found, status = self.found(name), self.sight().status
        if found is None or status is None:
            return None
        return next((line for line in status.runs if line.run == -found.number), None)

    def wait_line(self, name: str, *states: RunState) -> RunStatus:
        """Return the query's line once it is in one of the states."""

        def look() -> RunStatus | None:
            seen = self.sight()
            line = self.line(name)
            if line is not None and line.state in states:
                return line
            assert seen.liveness is not Liveness.EXITED, f"{seen.status}\n{self.log()}"
            return None

        return wait_for(look, f"query {name!r} is {states}")

    def wait_script(self, *states: ScriptState) -> DriverStatus:
        """Return what the driver reports once its script is in one of the states."""

        def look() -> DriverStatus | None:
            status = self.sight().status
            return status if status and status.script and status.script.state in states else None

        return wait_for(look, f"the script is {states}")

    def log(self, lines: int = 200) -> str:
        """Return the end of the driver's log."""
        return self.launcher.log_tail(self.application, self.epoch, lines=lines)


@contextmanager
def line_server(lines: list[str]) -> Iterator[int]:
    """Send lines to everybody who connects, and keep the connections open; yield the port."""
    server = socket.create_server(("127.0.0.1", 0))
    open_ones: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                taken, _ = server.accept()
            except OSError:
                return
            open_ones.append(taken)
            taken.sendall("".join(f"{line}\n" for line in lines).encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.close()
        for one in open_ones:
            one.close()


def files_in(folder: Path) -> list[str]:
    """Return the names of the files that a file sink has committed."""
    log = folder / "_spark_metadata"
    names: set[str] = set()
    for entry in sorted(log.glob("[0-9]*")):
        for text in entry.read_text().splitlines()[1:]:
            names.add(json.loads(text)["path"].rpartition("/")[2])
    return sorted(names)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Return the rows that a JSON file sink has committed."""
    lines = (text for name in files_in(folder) for text in (folder / name).read_text().splitlines())
    return [json.loads(text) for text in lines]


def plain_environment(script: Path) -> dict[str, str]:
    """Return what `python script` runs with, without Headgate."""
    path = os.pathsep.join(filter(None, [pieces.spark(), str(script.parent)]))
    of_spark = pieces.of_spark()
    own = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
    # As in the drivers: 200 tasks of Python take minutes on two cores.
    own["PYSPARK_SUBMIT_ARGS"] = "--conf spark.sql.shuffle.partitions=2 pyspark-shell"
    return {**os.environ, **of_spark, **own}


def run_plainly(script: Path, *arguments: str) -> str:
    """Run a script as `python script` does, and return what it prints."""
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=script.parent,
        env=plain_environment(script),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@contextmanager
def running_plainly(script: Path, log: Path, *arguments: str) -> Iterator[None]:
    """Run a script that does not end as `python script` does, its output to a file."""
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=plain_environment(script),
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # its JVM too
        process.wait()


def example(name: str) -> Path:
    """Return one of the example scripts that Spark's own package brings; skip where it does not."""
    import pyspark

    package = Path(pieces.spark(), "pyspark") if pieces.spark() else Path(pyspark.__file__).parent
    place = package / "examples/src/main/python/sql/streaming" / name
    if not place.is_file():
        pytest.skip(f"this pyspark package does not bring {name}")
    return place
