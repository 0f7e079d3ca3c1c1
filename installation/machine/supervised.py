"""Run a trial cluster's processes under their own supervisord.

The supervisord is a daemon that keeps running after Ctrl-C in `make run`, because drivers use the
cluster; `make stop` ends it. A killed process is restarted.
"""

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from controlplane.home import Home, write_private
from headgate_ground import identities
from headgate_server import places
from installation.machine import claims, program, programs

#: Seconds in which supervisord must be started; a machine that is not busy needs one.
SPAWN_LIMIT_S = 300


class SupervisedCluster(ABC):
    """A trial cluster in a folder with logs and process identities, as in an installation."""

    leave_s: int  # seconds in which its processes must exit; then they are killed

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = Home(root)

    @abstractmethod
    def _programs(self) -> Sequence[programs.ServiceProgram]:
        """Return the processes to run."""

    def running(self) -> list[identities.Process]:
        """Return the cluster's running processes, the supervisor first."""
        processes = claims.own_processes(self.home) if self.home.run.exists() else []
        return sorted(processes, key=lambda one: (one.name != "supervisord", one.name))

    def stop(self) -> bool:
        """Stop the cluster (drivers on it lose their executors); return whether anything ran."""
        processes = self.running()
        claims.end(processes[:1], limit_s=self.leave_s * 2)
        claims.end(self.running(), limit_s=self.leave_s)
        return bool(processes)

    def _is_supervised(self) -> bool:
        """Return whether the supervisor is running."""
        return any(process.name == "supervisord" for process in self.running())

    def _spawn(self, environment: Mapping[str, str], *, controlled: bool = False) -> None:
        """Start the supervisor, which `supervisorctl` can reach if it is `controlled`."""
        self.home.make()
        text = programs.configuration(self.home, self._programs(), controlled=controlled)
        write_private(self._configuration, text)
        subprocess.run(
            [
                *(sys.executable, "-I", "-S", program.__file__, "--daemon"),
                str(self.home.logs / "supervisord.out"),
                str(self.home.run / "supervisord.process"),
                *(sys.executable, "-m", "supervisor.supervisord", "-c", str(self._configuration)),
            ],
            check=True,
            cwd=places.DATA,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            timeout=SPAWN_LIMIT_S,
        )

    def _control(self, *arguments: str, limit_s: float) -> None:
        """Run `supervisorctl`; raise an error of `subprocess` if it fails."""
        subprocess.run(
            [
                *(sys.executable, "-m", "supervisor.supervisorctl", "-c", str(self._configuration)),
                *arguments,
            ],
            check=True,
            cwd=places.DATA,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=limit_s,
        )

    @property
    def _configuration(self) -> Path:
        return self.home.run / "supervisord.conf"
