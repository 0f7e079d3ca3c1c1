"""The first process in a driver's container: it starts the shim, and keeps the channel open.

`python -m queries.launchers.pods.agent`. The shim and the driver use a driver's folder in the pod,
as on a host. The channel (`channel`) copies the driver's files to the control plane, and what the
control plane wants of the driver into that folder. While the web process is away, the driver runs
on.

It ends once the driver has ended and everything has been sent. Nothing here decides about the
driver, except when the pod is being deleted: batches in flight then get the time that is left.
"""

import ctypes
import logging
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from headgate_ground.files import read_tail, use_forgiving_output
from headgate_ground.tolerant import whole
from headgate_server import places
from queries.domain.protocol import SHIM_LOG, DriverSpec
from queries.driver_folder import DriverFolder
from queries.launchers.pods.channel import Down, Line, Up
from queries.launchers.pods.driver import DriverInPod, read_bytes_of_mount
from queries.launchers.pods.layout import (
    AUTHORITIES,
    DRIVERS,
    ENV_PREFIX,
    FILE_PREFIX,
    INTENT,
    PLAN,
    POD_UID,
    SECRET,
    SPEC_KEY,
    TOKEN,
    UID_HEADER,
    WORK,
    Plan,
)
from queries.launchers.process.spawning import ShimFailed, start_shim

logger = logging.getLogger("headgate.pod")

GRACE = "HEADGATE_POD_GRACE_S"  # names the pod's termination grace period in seconds
TICK_S = 0.5  # between looks at the mounted assignment and the driver's end
LAST_FILES_S = 30.0  # without progress after the driver's end
UNHEARD_S = 15.0  # without an answer: in a pod that is being deleted, nobody waits longer
SHIM_LEAVES_S = 5.0  # for the shim to announce the exit
LEAVE_MARGIN_S = 10.0  # of the grace period, for the last files
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_OF_AGENT = "HEADGATE_POD_"  # begins the names of variables that no other process needs


@dataclass(frozen=True, slots=True)
class Places:
    """The mounted folders; only tests have others."""

    intent: Path = INTENT
    secret: Path = SECRET
    work: Path = WORK

    @classmethod
    def named_by(cls, environ: Mapping[str, str]) -> "Places":
        """Return the folders that the environment names, and the usual ones in place of others."""
        return cls(
            Path(environ.get("HEADGATE_POD_INTENT", INTENT)),
            Path(environ.get("HEADGATE_POD_SECRET", SECRET)),
            Path(environ.get("HEADGATE_POD_WORK", WORK)),
        )

    def drivers(self) -> Path:
        """Return the folder of the pod's only driver and its application."""
        return self.work / DRIVERS.relative_to(WORK)


class Agent:
    """Starts the shim, runs the channel's threads, and waits for the driver's end."""

    def __init__(self, places_: Places, environ: Mapping[str, str]) -> None:
        self._places = places_
        self._environ = environ
        self._plan = Plan.loads(read_bytes_of_mount(places_.intent / PLAN).decode())
        self._uid = environ.get(POD_UID, "")
        if not self._uid:  # owner files tell pods apart by it
            raise ValueError(f"{POD_UID} is not set.")
        grace = whole(environ.get(GRACE, ""))
        self._grace_s = 60 if grace is None else grace
        self._over = threading.Event()

    def run(self) -> int:
        """Run the driver; return 0 once it has reported its exit, else 1."""
        _become_subreaper()
        spec = self._spec()
        root = self._places.drivers() / self._plan.application / str(self._plan.epoch)
        driver = DriverInPod(DriverFolder.make(root), spec, self._places.intent)
        driver.write_intent()
        with _signals() as next_signals:
            self._start_shim(driver)
            up = Up(self._line(), driver, self._over)
            down = Down(self._line(), driver, self._over)
            for part in (up, down):
                threading.Thread(target=part.run, name=type(part).__name__, daemon=True).start()
            try:
                self._wait(driver, up, down, next_signals)
            finally:
                self._over.set()
        return 0 if driver.has_reported() else 1

    def _spec(self) -> DriverSpec:
        """Return the driver's spec with what only the pod knows; link its secrets."""
        spec = DriverSpec.loads(read_bytes_of_mount(self._places.secret / SPEC_KEY).decode())
        return replace(spec, host=f"pod:{self._uid}", secrets_dir=str(self._linked_secrets()))

    def _linked_secrets(self) -> Path:
        """Return the folder with links to the mounted secrets, also to those of later queries.

        Their content stays in memory (tmpfs).
        """
        secrets = self._places.work / "secrets"
        secrets.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in self._secrets(FILE_PREFIX):
            with suppress(FileExistsError):
                (secrets / file.name.removeprefix(FILE_PREFIX)).symlink_to(file)
        return secrets

    def _secrets(self, prefix: str) -> Iterator[Path]:
        return (path for path in self._places.secret.iterdir() if path.name.startswith(prefix))

    def _line(self) -> Line:
        token = read_bytes_of_mount(self._places.secret / TOKEN).decode().strip()
        headers = {"Authorization": f"Bearer {token}", UID_HEADER: self._uid}
        return Line(self._plan.url, headers, self._places.intent / AUTHORITIES)

    def _start_shim(self, driver: DriverInPod) -> None:
        """Start the shim; raise `ShimFailed` if it does not take over its folder."""
        passed = {
            name: value for name, value in self._environ.items() if not name.startswith(_OF_AGENT)
        }
        secrets = {
            file.name.removeprefix(ENV_PREFIX): read_bytes_of_mount(file).decode()
            for file in self._secrets(ENV_PREFIX)
        }
        env = {**passed, **secrets, "PYTHONPATH": ":".join(places.import_path())}
        start_shim(driver.folder.root, env)

    def _wait(
        self, driver: DriverInPod, up: Up, down: Down, next_signals: Callable[[float], set[int]]
    ) -> None:
        """Wait for the driver's end, and until its files have arrived or no longer do."""
        ended_at: float | None = None  # monotonic, as are all times here
        shim_ends_at: float | None = None  # when it gets a SIGTERM, because the pod is deleted
        while True:
            received = next_signals(TICK_S)
            has_children = _reap()
            now = time.monotonic()
            if ended_at is None and (driver.has_reported() or not has_children):
                ended_at = now
            if ended_at is not None:
                is_shim_gone = not has_children or now - ended_at > SHIM_LEAVES_S
                if up.all_sent.is_set() and is_shim_gone:
                    return
                is_unheard = now - max(up.progress_at, down.heard_at) > UNHEARD_S
                if now - max(up.progress_at, ended_at) > LAST_FILES_S or (
                    shim_ends_at is not None and is_shim_gone and is_unheard
                ):
                    logger.error("the driver's last files did not reach the control plane")
                    return
                if not driver.has_reported():  # the shim was killed, so nobody will report
                    said = read_tail(driver.folder.control / SHIM_LOG, 4000).strip()
                    logger.error(
                        "the driver has ended, and its shim has not reported how\n%s", said
                    )
                    up.wait_for_rest(LAST_FILES_S)
                    return
                continue
            if signal.SIGTERM in received and shim_ends_at is None:
                logger.info("the pod is being deleted: batches in flight may end")
                driver.leave()
                shim_ends_at = now + self._time_for_batches(driver.spec)
            if shim_ends_at is not None and now >= shim_ends_at:
                shim_ends_at = math.inf if driver.end_shim() else now
            if driver.superseded.is_set():
                driver.kill()
            self._linked_secrets()
            driver.look_at_mount()

    def _time_for_batches(self, spec: DriverSpec) -> float:
        """Return the seconds before the driver must begin to leave."""
        return max(0.0, self._grace_s - spec.stop_timeout_s - LEAVE_MARGIN_S)


def _become_subreaper() -> None:
    """Inherit the orphans of this container, also where another process has the PID 1."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _reap() -> bool:
    """Reap every child that has ended; return whether there are others."""
    with suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return True
    return False


@contextmanager
def _signals() -> Iterator[Callable[[float], set[int]]]:
    """Yield a function that waits for signals; those that nobody handles would be lost as PID 1."""
    read, write = os.pipe()
    for end in (read, write):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)

    def wait(limit_s: float) -> set[int]:
        """Return the signals that arrived within the time."""
        if not select.select([read], [], [], limit_s)[0]:
            return set()
        return set(os.read(read, 4096))

    try:
        yield wait
    finally:
        signal.set_wakeup_fd(-1)
        os.close(read)
        os.close(write)


def main() -> int:
    """Run the pod's driver; return the container's exit code."""
    os.umask(0o077)
    use_forgiving_output()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        return Agent(Places.named_by(os.environ), os.environ).run()
    except (ShimFailed, OSError, ValueError, TypeError, KeyError) as error:
        logger.error("the driver was not started: %s", error)
        with suppress(OSError):  # Kubernetes reads it from there; it exists only in a pod
            descriptor = os.open("/dev/termination-log", os.O_WRONLY | os.O_TRUNC)
            with os.fdopen(descriptor, "w") as message:
                message.write(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
