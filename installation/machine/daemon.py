"""Run a trial server as a daemon: it outlives `make run`, because drivers use it.

Definitions contain its address, so its ports and its passwords are kept across restarts.
`make stop` ends it.
"""

import fcntl
import json
import os
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TypeVar

from controlplane.home import StartProblem, read_line, write_private
from controlplane.servers import free_ports, port_is_free
from headgate_ground import identities
from headgate_ground.files import read_tail
from installation.machine import claims, program

A = TypeVar("A")

_SPAWN_LIMIT_S = 60
STOP_LIMIT_S = 30
_LOOK_EVERY_S = 0.1  # there is no event to wait for when a port opens
_LOG_BYTES = 5_000_000  # beyond it, the log of earlier starts is moved aside


class Daemon(ABC):
    """A server in a folder with its configuration, data, log, and process identity."""

    label: str  # of its line in the output of `make run`
    name: str  # as in "The Kafka broker is not responding"
    keeps: str  # what a stop leaves: "records"
    start_limit_s: float = 300  # one that ends is noticed at once

    def __init__(self, folder: Path, stem: str) -> None:
        """`stem` names the log and the process identity in the folder."""
        self.folder = folder
        self._java = "java"  # `start` names another
        self.log = folder / f"{stem}.log"  # the server's output
        self._identity = folder / f"{stem}.process"
        self._stopped = folder / "stopped"  # exists from a stop until the next start
        self._address = folder / "address.json"

    @property
    @abstractmethod
    def place(self) -> str:
        """Return the address at which the server responds, as shown to users."""

    @abstractmethod
    def sentence(self) -> str:
        """Return the server's description for users."""

    def secrets(self) -> Mapping[str, str]:
        """Return the values that clients need, by file name in the secrets folder."""
        return {}

    def start(self, java_home: Path, *, limit_s: float | None = None) -> bool:
        """Start the server if necessary, and wait until it responds; return whether it was down.

        Raises `StartProblem` if something is missing, a port is taken, or it does not respond
        within the time limit, which defaults to `start_limit_s`.
        """
        limit_s = self.start_limit_s if limit_s is None else limit_s
        self._java = str(java_home / "bin" / "java")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._exclusive(limit_s):
            if self.process() is not None:
                self._wait_until_it_responds(limit_s)
                return False
            command = self._prepare()
            self._put_old_log_aside()
            self._stopped.unlink(missing_ok=True)
            self._spawn(command)
            self._wait_until_it_responds(limit_s)
            return True

    def keep_secrets(self, folder: Path) -> None:
        """Write the secrets to the files that definitions can reference: "file:kafka-jaas"."""
        for name, value in self.secrets().items():
            if read_line(folder / name) != value:
                write_private(folder / name, value)

    def has_crashed(self) -> bool:
        """Return whether the server exited without being stopped."""
        ended = self._identity.exists() and self.process() is None
        return ended and not self._stopped.exists()

    def process(self) -> identities.Process | None:
        """Return the server's live process, or None."""
        identity = identities.read_identity(self._identity)
        return identity if identity is not None and identity.alive() else None

    def stop(self, *, limit_s: float = STOP_LIMIT_S) -> bool:
        """Stop the server (SIGTERM, SIGKILL after the limit); return whether it was running."""
        process = self.process()
        if process is None:
            return False
        self._stopped.touch()  # first: `make run` notices the exit as soon as we do
        claims.end([process], limit_s=limit_s)
        self._identity.unlink(missing_ok=True)
        return True

    def kill(self) -> None:
        """SIGKILL the server, like a crash, and wait until it is gone."""
        process = self.process()
        if process is not None:
            identities.kill_and_wait(process.pid, process.start_time, STOP_LIMIT_S)

    def log_tail(self) -> str:
        """Return the end of the server's log; "" if there is none."""
        return "\n".join(read_tail(self.log, 20_000).splitlines()[-15:])

    # --- for the kinds of server ------------------------------------------------------

    def _stored_address(
        self, kind: Callable[..., A], ports: Sequence[str], usual: int | None, **secrets: str
    ) -> A:
        """Return the stored address; the first call, or a call for another kind, stores a new one.

        It has a free port for each name in `ports`, the first one `usual` if that is free.
        """
        with suppress(ValueError, TypeError):
            return kind(**json.loads(read_line(self._address)))
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        free = self._free_ports(len(ports), usual)
        chosen = {**dict(zip(ports, free, strict=True)), **secrets}
        write_private(self._address, json.dumps(chosen))
        return kind(**chosen)

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Check that the server can start, write its configuration, and return its command.

        Raises `StartProblem` if something is missing.
        """

    @abstractmethod
    def _ports(self) -> tuple[int, ...]:
        """Return the ports of 127.0.0.1 that must be free before a start."""

    @abstractmethod
    def _responds(self) -> bool:
        """Return whether the server does its work."""

    def _environment(self) -> dict[str, str]:
        """Return the server's environment."""
        return dict(os.environ)

    def _check_ports(self) -> None:
        for port in self._ports():
            if not port_is_free(port):
                raise StartProblem(
                    f"Port {port}, where the {self.name} listens, is in use.",
                    f"Stop the program that uses it (`ss -ltnp 'sport = :{port}'` shows "
                    f"which), or remove {self._address} to get another port, and correct the "
                    "queries that use it.",
                )

    def _free_ports(self, count: int, usual: int | None) -> tuple[int, ...]:
        """Return ports to keep: those starting at `usual` if all are free, otherwise any."""
        if usual is not None and all(port_is_free(usual + step) for step in range(count)):
            return tuple(range(usual, usual + count))
        ports = tuple(islice(free_ports(), count))
        if len(ports) < count:
            raise StartProblem(
                f"The {self.name} needs {count} free ports between 20000 and 31999, but fewer "
                "are free.",
                "",
            )
        return ports

    # --- inside -----------------------------------------------------------------------

    def _spawn(self, command: list[str]) -> None:
        subprocess.run(
            [
                *(sys.executable, "-I", "-S", program.__file__, "--daemon", str(self.log)),
                str(self._identity),
                *command,
            ],
            check=True,
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            timeout=_SPAWN_LIMIT_S,
        )

    def _put_old_log_aside(self) -> None:
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))

    def _wait_until_it_responds(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            process = self.process()
            if process is None:
                break
            if self._responds():
                return
            process.wait_for_end(_LOOK_EVERY_S)
        else:
            raise StartProblem(
                f"The {self.name} is not responding at {self.place} after {limit_s:.0f} s.",
                f"The end of {self.log}:\n{self.log_tail()}",
            )
        raise StartProblem(
            f"The {self.name} ended before it responded at {self.place}.",
            f"The end of {self.log}:\n{self.log_tail()}",
        )

    @contextmanager
    def _exclusive(self, limit_s: float) -> Iterator[None]:
        """Hold the start lock; raise `StartProblem` after the limit."""
        path = self.folder / "start.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + limit_s
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise StartProblem(
                            f"Another process has been starting the {self.name} for "
                            f"{limit_s:.0f} s.",
                            f"Check {path.parent}, then try again.",
                        ) from None
                    time.sleep(_LOOK_EVERY_S)  # the kernel offers no bounded wait for a lock
            yield
        finally:
            os.close(descriptor)
