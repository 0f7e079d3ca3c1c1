"""Manage the compose project for `make try-containers`, under its own name."""

import json
import os
import secrets
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from run import REPOSITORY, fail, print_line

#: Services that use our own image.
OURS = ("migrate", "web", "worker", "spark-ui", "ingester", "watcher")
IMAGE = "headgate:try"
#: Time limit for anything but a build, in seconds; generous, for small and busy machines.
LIMIT_S = 900.0
BUILD_LIMIT_S = 3600.0
#: On such machines Spark may take minutes to start; a start that times out counts as failed.
PATIENCE = {"HEADGATE_START_DEADLINE_S": "900", "HEADGATE_OPERATION_DEADLINE_S": "1800"}
#: Polling interval in seconds: neither containers nor REST send change notifications.
LOOK_EVERY_S = 0.5

T = TypeVar("T")


def wait(what: str, look: Callable[[], T | None]) -> T:
    """Return the first truthy value of `look`; raise `TimeoutError` after `LIMIT_S`."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if value := look():
            return value
        time.sleep(LOOK_EVERY_S)
    raise TimeoutError(f"Not seen in {LIMIT_S:.0f} s: {what}.")


def override(stand_ins: Mapping[str, str], network: str) -> dict[str, Any]:
    """Return the override for the compose file: images and the build network."""
    build = {"network": network, "args": {}}
    ours = {"image": IMAGE, "build": build, "environment": PATIENCE}
    services: dict[str, Any] = dict.fromkeys(OURS, ours)
    if stand_ins:
        build["args"] = {"BASE": stand_ins["python:3.11-slim-bookworm"]}
        services["redis"] = {"image": stand_ins["valkey/valkey:9-bookworm"]}
        services["postgres"] = {"image": stand_ins["postgres:17-bookworm"]}
    return {"services": services}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Engine:
    """One compose project; nothing else on the engine is changed."""

    def __init__(self, folder: Path, stand_ins: Mapping[str, str], network: str) -> None:
        self.project = f"headgate-try-{secrets.token_hex(3)}"
        self.port = _free_port()
        values = {
            "SECRET_KEY": secrets.token_urlsafe(50),
            "POSTGRES_PASSWORD": secrets.token_hex(16),
            "REDIS_PASSWORD": secrets.token_hex(16),
            "HEADGATE_PORT": str(self.port),
            "HEADGATE_SPARK_UI_PORT": str(_free_port()),
        }
        own = {*values, "ALLOWED_HOSTS", "CSRF_TRUSTED_ORIGINS", "HEADGATE_HTTPS"}
        self.environment = {name: text for name, text in os.environ.items() if name not in own}
        settings, laid_over = folder / "env", folder / "override.json"
        settings.write_text("".join(f"{name}={text}\n" for name, text in values.items()))
        settings.chmod(0o600)
        laid_over.write_text(json.dumps(override(stand_ins, network)))
        self._compose = (
            *("docker", "compose", "--project-name", self.project, "--env-file", str(settings)),
            *("--project-directory", str(REPOSITORY)),
            *("--file", str(REPOSITORY / "docker-compose.yml"), "--file", str(laid_over)),
        )
        self.token = ""

    def compose(self, *arguments: str, text: str = "", limit_s: float = LIMIT_S) -> str:
        """Run a compose command; return its output, or print it and exit on failure."""
        return self._run((*self._compose, *arguments), text, limit_s)

    def docker(self, *arguments: str) -> str:
        """Run an engine command; return its output, or print it and exit on failure."""
        return self._run(("docker", *arguments), "", LIMIT_S).strip()

    def _run(self, command: tuple[str, ...], text: str, limit_s: float) -> str:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        if done.returncode:
            output = "\n".join((done.stdout + done.stderr).splitlines()[-40:])
            fail(f"{output}\n{' '.join(command[-6:])} failed.", "Its output is above.")
        return done.stdout

    def state(self, service: str) -> dict[str, Any]:
        """Return the engine's record of a service's container."""
        ids = self.compose("ps", "--all", "--quiet", service).split()
        if not ids:
            return {}
        with suppress(json.JSONDecodeError):
            described: dict[str, Any] = json.loads(self.docker("inspect", ids[0]))[0]
            return described
        return {}

    def healthy(self, service: str, *, other_than: str = "") -> bool:
        """Return whether a service is healthy, in a process with another start time than before."""
        state = self.state(service).get("State", {})
        again = state.get("StartedAt", "") != other_than
        return again and bool(state.get("Health", {}).get("Status") == "healthy")

    def crash(self, service: str) -> None:
        """Kill a container's first process from outside, so that the engine sees a crash.

        After `docker kill`, the engine would not restart the container, because that counts as the
        user's request.
        """
        pid = str(self.state(service)["State"]["Pid"])
        self.docker(
            *("run", "--rm", "--pid", "host", "--user", "0", "--entrypoint", "kill"),
            *(IMAGE, "-9", pid),
        )

    def recreate(self, service: str) -> None:
        """Replace a service's container with a new one."""
        self.compose("up", "--detach", "--no-build", "--no-deps", "--force-recreate", service)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return the JSON from a REST call; None if there is no response or it is not 2xx."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Token {self.token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=70) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code < 500:
                    problem = error.read().decode(errors="replace")
                    raise RuntimeError(f"{method} {path}: {error.code} {problem}") from None
        except (OSError, ValueError, urllib.error.URLError):
            pass
        return None

    def batch_since(self, query: str, moment: datetime) -> int | None:
        """Return the query's newest batch if it started after a given time; otherwise None."""
        line = (self.call("GET", f"queries/{query}/") or {}).get("last_progress")
        if line and datetime.fromisoformat(line["timestamp"]).astimezone(UTC) > moment:
            return int(line["batch_id"])
        return None

    def verb(self, query: str, verb: str) -> None:
        """Request a start or stop, and wait until it has finished."""
        operation = wait(f"{verb} accepted", lambda: self.call("POST", f"queries/{query}/{verb}/"))

        def ended() -> Any:
            return (self.call("GET", f"operations/{operation['id']}/?wait=30") or {}).get("outcome")

        outcome = wait(f"the end of {verb}", ended)
        if outcome != "DONE":
            operation_end = self.call("GET", f"operations/{operation['id']}/")
            raise RuntimeError(
                f"{verb} of {query} ended with {outcome}: {json.dumps(operation_end)}"
            )

    def down(self) -> None:
        """Remove the project's containers, network and volumes."""
        print_line("Removing its containers and volumes…")
        self.compose("down", "--volumes", "--timeout", "20")
