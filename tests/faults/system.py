"""The whole system on one machine, started as its user starts it, spoken to over REST."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from headgate_ground import identities as processes

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 240  # generous: machines that run tests are small and shared
DEPLOY_LIMIT_S = 600  # one starts up to three JVMs
PROGRAMS = {"valkey", "ingester", "worker", "web", "spark-ui", "watcher"}


class Programs:
    """The programs of an installation, as its folder and its port tell of them."""

    home: Path
    port: int

    def identities(self) -> dict[str, tuple[int, int]]:
        """Return (pid, start time) of each program that was started last."""
        found = {}
        for file in (self.home / "run").glob("*.process"):
            raw = json.loads(file.read_text())
            found[file.stem] = (raw["pid"], raw["start_time"])
        return found

    def living(self) -> set[str]:
        """Return the names of the programs that live."""
        return {name for name, who in self.identities().items() if processes.is_alive(*who)}

    def ready(self) -> bool:
        """Ask /readyz."""
        try:
            address = f"http://127.0.0.1:{self.port}/readyz"
            with urllib.request.urlopen(address, timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class System(Programs):
    """`manage.py up` in a home of its own, with the demo unless told otherwise, and a token."""

    #: What runs one of Django's commands, what starts it, and where: of this checkout.
    command: tuple[str, ...] = (sys.executable, "manage.py")
    starts: tuple[str, ...] = (*command, "up")
    folder = REPOSITORY

    def __init__(self, home: Path, port: int, **environment: str) -> None:
        self.home = home
        self.port = port
        self.base = f"http://127.0.0.1:{port}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "REDIS_URL"},
            "HEADGATE_HOME": str(home),
            "HEADGATE_PORT": str(port),
            "HEADGATE_DEMO": "1",
            "HEADGATE_CLASS_ARCHIVES": "0",  # it would take half of the machine meanwhile
            "HEADGATE_START_DEADLINE_S": "300",
            "HEADGATE_STANDBYS_WHEN_BUSY": "1",  # machines that run tests are
            **environment,
        }
        for name in ("DATABASE_URL", "DJANGO_ALLOW_ASYNC_UNSAFE"):
            self.environment.pop(name, None)
        self.said = ""
        self.process: subprocess.Popen[str] | None = None
        self.token = ""

    def up(self) -> None:
        """Start it and wait for its address."""
        self.process = subprocess.Popen(
            self.starts,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if "Ctrl-C stops it" in line:
                break
        else:
            raise AssertionError(f"the system did not come up:\n{self.said}")
        if not self.token:
            self.token = self.manage("createtoken", "admin").strip()

    def interrupt(self) -> str:
        """Press Ctrl-C; return what is said on leaving."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate(timeout=LIMIT_S)
        return rest

    def manage(self, *arguments: str) -> str:
        """Run a management command of this installation; return what it prints."""
        done = subprocess.run(
            [*self.command, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=True,
        )
        return done.stdout

    def close(self) -> None:
        """End everything, drivers included."""
        if self.process is not None and self.process.poll() is None:
            self.interrupt()
        self.manage("stop")

    def rest(self) -> None:
        """Stop every query and script at once, and wait until no driver is left."""
        names = [one["name"] for one in self.get("applications/?limit=200")["results"]]
        for name in names:
            self.call("POST", f"applications/{name}/stop/", {"mode": "now"})

        def resting() -> bool:
            return all(self.get(f"applications/{name}/")["driver"] is None for name in names)

        self.wait("no driver", resting)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and JSON of a REST call."""
        request = urllib.request.Request(
            f"{self.base}/api/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Token {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=70) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def get(self, path: str) -> Any:
        """Return the JSON of an address that must be there."""
        status, body = self.call("GET", path)
        assert status == 200, (path, status, body)
        return body

    def query(self, name: str) -> Any:
        """Return a query's body."""
        return self.get(f"queries/{name}/")

    def batch(self, name: str) -> int:
        """Return the last batch a query has told of, -1 before the first."""
        progress = self.query(name)["last_progress"]
        return -1 if progress is None else int(progress["batch_id"])

    def verb(self, name: str, verb: str, body: Any = None) -> Any:
        """Ask for a start, stop or restart; return the operation."""
        status, operation = self.call("POST", f"queries/{name}/{verb}/", body)
        assert status == 202, operation
        return operation

    def deployed(self, body: dict[str, Any]) -> dict[str, Any]:
        """Ask for a deploy; return its report once it has ended."""
        status, asked = self.call("POST", "deploys/", body)
        assert status == 202, asked

        def look() -> Any:
            report = self.get(f"deploys/{asked['id']}/")
            return report if report["ended_at"] else None

        report: dict[str, Any] = self.wait("the end of the deploy", look, DEPLOY_LIMIT_S)
        return report

    def wait(self, what: str, condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
        """Return the condition's value once it is true."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if value := condition():
                return value
            time.sleep(0.5)  # a page's reader has no event to wait for either
        raise AssertionError(f"not seen in {limit_s} s: {what}")

    def running(self, name: str) -> Any:
        """Wait until a query is RUNNING; return its body."""

        def look() -> Any:
            body = self.query(name)
            return body if body["phase"] == "RUNNING" else None

        return self.wait(f"{name} running", look)

    def program(self, word: str) -> Any:
        """Return the system's own process whose command line holds `word`, once it is there."""
        return self.wait(f"a process of {word}", lambda: self._program(word))

    def _program(self, word: str) -> psutil.Process | None:
        assert self.process is not None
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if word in " ".join(child.cmdline()) and "supervisord" not in child.cmdline()[2:3]:
                    return child
        return None

    def batches(self, name: str) -> list[int]:
        """Return the ids of all batches stored of a query, oldest first."""
        return [int(report["batchId"]) for report in self.reports(name)]

    def reports(self, name: str) -> list[dict[str, Any]]:
        """Return Spark's progress of all batches stored of a query, oldest first."""
        found: list[dict[str, Any]] = []
        path = f"queries/{name}/progress/"
        while path:
            page = self.get(path)
            found += [row["progress"] for row in page["results"]]
            path = (page["next"] or "").partition("/api/v1/")[2]
        return found[::-1]
