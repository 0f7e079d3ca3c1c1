"""The `headgate` command in a process of its own, against a real server."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from queries.api.supervision import operations
from queries.models.access.accounts import Scope
from queries.services.access.tokens import create_token
from queries.services.procedures.engine import advance, due_operations
from queries.tasks import WORK
from tests.scenarios.stage import Stage

#: How long a command may take on a machine that is busy with other tests.
LIMIT_S = 120
#: How often supervision looks while a command waits: looks take the command's processor time.
LOOK_EVERY_S = 0.15
#: What runs the command of this checkout.
COMMAND = (sys.executable, "-m", "headgate_cli")
SOURCE = Path(settings.BASE_DIR) / "cli"


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Shell:
    """A shell with the environment of CI: an address and a token."""

    folder: Path
    url: str
    env: dict[str, str] = field(default_factory=dict)
    meanwhile: Callable[[], None] | None = None

    def environment(self) -> dict[str, str]:
        """Return what a process gets, and nothing of the machine's own."""
        return {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "PYTHONPATH": str(SOURCE),
            "HEADGATE_CONFIG": str(self.folder / "config" / "contexts.json"),
            "LANG": "C.UTF-8",
            **self.env,
        }

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "") -> Done:
        """Run the command, with what is going on meanwhile; check its exit code."""
        return self._run([*COMMAND, *arguments], code, stdin)

    def script(self, text: str, code: int = 0) -> Done:
        """Run a script of bash in which `headgate` is the command."""
        command = self.folder / "bin" / "headgate"
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        command.chmod(0o755)
        path = f"PATH={command.parent}:$PATH"
        return self._run(["bash", "-euo", "pipefail", "-c", f"{path}\n{text}"], code, "")

    def _run(self, command: list[str], code: int, stdin: str) -> Done:
        ends = time.monotonic() + LIMIT_S
        with subprocess.Popen(
            command,
            env=self.environment(),
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdin is not None
                process.stdin.write(stdin)
                process.stdin.close()
                process.stdin = None
                while self.meanwhile and process.poll() is None and time.monotonic() < ends:
                    self.meanwhile()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(LOOK_EVERY_S)
                out, err = process.communicate(timeout=max(1, ends - time.monotonic()))
            finally:
                process.kill()
        assert process.returncode == code, f"{process.returncode}: {out}{err}"
        return Done(process.returncode, out, err)


def token_of(user: User, scope: Scope = Scope.ADMIN) -> str:
    """Return a new token of a user."""
    _, text = create_token(user=user, name="ci", actor="tests", now=timezone.now(), scope=scope)
    return str(text)


@pytest.fixture
def shell(live_server: Any, author: User, tmp_path: Path) -> Shell:
    """Return Aude's shell."""
    env = {"HEADGATE_URL": live_server.url, "HEADGATE_TOKEN": token_of(author)}
    return Shell(tmp_path, live_server.url, env)


@pytest.fixture
def stage(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return an installation that works while a command runs, with drivers that oblige."""
    # Nobody publishes changes here: what waits reads again instead.
    monkeypatch.setattr(operations, "READ_EVERY_S", 0.1)
    stage = Stage(obliging=True)
    stage.now = timezone.now()

    def work() -> None:
        stage.now = timezone.now()
        stage.settle()
        for operation in due_operations(now=stage.now):
            now, launcher = stage.now, stage.launcher
            advance(operation, procedures=WORK, launcher=launcher, now=now)

    shell.meanwhile = work
    return stage


def said(env: dict[str, str]) -> dict[str, str]:
    """Return an environment with the machine's proxies, for what asks an index of packages."""
    return {**os.environ, **env}
