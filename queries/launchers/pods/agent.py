"""The first process in a driver's container: it starts the shim, and keeps the channel open.

`python -m queries.launchers.pods.agent`. The shim and the driver use a driver's folder in the pod,
as on a host. This process copies the driver's files to the control plane, and what the control
plane wants of the driver into that folder. While the web process is away, the driver runs on.

It ends once the driver has ended and everything has been sent. Nothing here decides about the
driver, except when the pod is being deleted: batches in flight then get the time that is left.
"""

import ctypes
import http.client
import json
import logging
import math
import os
import re
import select
import signal
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, urlsplit

from headgate_ground import identities, spool
from headgate_ground.files import (
    open_plain,
    read_bytes,
    read_file,
    read_tail,
    replace_file,
    use_forgiving_output,
)
from headgate_ground.tolerant import whole
from headgate_ground.untrusted import names_in, status_of
from headgate_server import places
from queries.domain.hosts import SILENT_AFTER
from queries.domain.protocol import (
    ASSIGNMENT,
    EXIT,
    HOST_SEEN,
    IDENT,
    LAST_SEQ,
    POOLS,
    SHIM_LOG,
    SPEC,
    STATUS,
    Assignment,
    Current,
    DriverSpec,
    Ident,
    Want,
)
from queries.driver_folder import DriverFolder, current_file
from queries.launchers.pods.layout import (
    AUTHORITIES,
    DRIVERS,
    ENV_PREFIX,
    FILE_PREFIX,
    GROWING,
    INTENT,
    MOST_OF_GROWING,
    MOST_OF_PART,
    MOST_OF_WHOLE,
    PLAN,
    POD_UID,
    POLL_S,
    SECRET,
    SPEC_KEY,
    TOKEN,
    UID_HEADER,
    WHOLE,
    WORK,
    News,
    Plan,
)
from queries.launchers.process.spawning import SHIM, start_shim

logger = logging.getLogger("headgate.pod")

GRACE = "HEADGATE_POD_GRACE_S"  # names the pod's termination grace period in seconds
SHIM_TAKES_S = 120  # for the shim to take over its folder; it needs about 0.2 s
SEND_EVERY_S = 0.3  # between looks at the driver's files
TICK_S = 0.5  # between looks at the mounted assignment and the driver's end
ANSWER_S = 15.0  # for an answer, beyond the time that the web process may hold it
PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0  # after a failed request
LAST_FILES_S = 30.0  # without progress after the driver's end
REST_FIRST_S = 15.0  # for the log and the spool to arrive before the exit, which is read last
SHIM_LEAVES_S = 5.0  # for the shim to announce the exit
LEAVE_MARGIN_S = 10.0  # of the grace period, for the last files
#: Answers about one file: it is not accepted in this form, and the others do not wait for it.
_NOT_THIS_ONE = frozenset({400, 404, 405, 413})
_SEGMENT = re.compile(rf"[0-9]{{20}}{re.escape(spool.SUFFIX)}")
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


# --- requests -------------------------------------------------------------------------


class Unanswered(Exception):
    """A request got no usable answer: it is repeated after a pause."""


class Line:
    """One thread's connection to the web process, kept from one request to the next."""

    def __init__(self, url: str, headers: Mapping[str, str], authorities: Path) -> None:
        parts = urlsplit(url)
        self._path = parts.path.rstrip("/")
        self._headers = dict(headers)
        self._is_tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._authorities = authorities
        self._link: http.client.HTTPConnection | None = None

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, limit_s: float = ANSWER_S
    ) -> tuple[int, bytes]:
        """Return an answer's status and body; raise `Unanswered` if there is none in time.

        A kept connection may have been closed by the other end, so the request is then sent again:
        all of them may be repeated.
        """
        is_kept = self._link is not None
        try:
            return self._ask(method, path, body, limit_s)
        except TimeoutError as error:
            raise Unanswered("no answer in time") from error
        except (OSError, http.client.HTTPException) as error:
            if not is_kept:
                raise Unanswered(str(error) or type(error).__name__) from error
        try:
            return self._ask(method, path, body, limit_s)
        except (OSError, http.client.HTTPException) as error:
            raise Unanswered(str(error) or type(error).__name__) from error

    def _ask(self, method: str, path: str, body: bytes | None, limit_s: float) -> tuple[int, bytes]:
        try:
            link = self._link = self._link or self._connected()
            assert link.sock is not None
            link.sock.settimeout(limit_s)
            link.request(method, self._path + path, body, self._headers)
            answer = link.getresponse()
            data = answer.read(MOST_OF_WHOLE)
            if not answer.isclosed() or answer.will_close:  # longer than anything we know
                self.close()
            return answer.status, data
        except BaseException:
            self.close()
            raise

    def _connected(self) -> http.client.HTTPConnection:
        link: http.client.HTTPConnection
        if self._is_tls:
            cafile = str(self._authorities) if self._authorities.exists() else None
            context = ssl.create_default_context(cafile=cafile)
            link = http.client.HTTPSConnection(
                self._host, self._port, timeout=ANSWER_S, context=context
            )
        else:
            link = http.client.HTTPConnection(self._host, self._port, timeout=ANSWER_S)
        link.connect()
        return link

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        if self._link is not None:
            self._link.close()
            self._link = None


class Notes:
    """Writes a line to the log when something changes, and none while it stays as it is."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._last = ""

    def problem(self, text: str) -> None:
        """Note a problem."""
        if text != self._last:
            logger.warning("%s: %s", self._subject, text)
            self._last = text

    def fine(self) -> None:
        """Note that there is no problem any more."""
        if self._last:
            logger.info("%s: works again", self._subject)
            self._last = ""


# --- the driver -----------------------------------------------------------------------


def drained(assignment: Assignment) -> Assignment:
    """Return an assignment whose runs end after the batch in flight, and then the driver."""
    queries = tuple(
        replace(entry, want=Want.DRAIN) if entry.want is Want.RUN else entry
        for entry in assignment.queries
    )
    return replace(assignment, queries=queries, end=True)


class DriverInPod:
    """The driver's folder and processes, as the agent changes and signals them."""

    def __init__(self, folder: DriverFolder, spec: DriverSpec, intent: Path) -> None:
        self.folder = folder
        self.spec = spec
        self._intent = intent
        self._changing = threading.Lock()
        self._is_leaving = False  # the pod is being deleted
        self._is_terminated = False
        self._notes = Notes("the mounted assignment")
        self.superseded = threading.Event()

    def write_intent(self) -> None:
        """Write what the shim and the driver read, the assignment that is mounted included."""
        replace_file(self.folder.control / SPEC, self.spec.dumps())
        replace_file(
            self.folder.control / POOLS, read_bytes_of_mount(self._intent / POOLS).decode()
        )
        self.look_at_mount()
        if not self.spec.standby:
            self._make_current()

    def look_at_mount(self) -> None:
        """Use the assignment that is mounted, if it is newer than the driver's."""
        try:
            mounted = Assignment.loads(read_bytes_of_mount(self._intent / ASSIGNMENT).decode())
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError) as error:
            self._notes.problem(str(error))
            return
        self._notes.fine()
        self.assign(mounted)

    def assign(self, assignment: Assignment) -> None:
        """Replace the driver's assignment if this one has a higher generation, and nudge it."""
        if assignment.epoch != self.spec.epoch:
            return
        with self._changing:
            former = self._assignment()
            if former is not None and assignment.generation <= former.generation:
                return
            self._write(drained(assignment) if self._is_leaving else assignment)
            if self.spec.standby and assignment.generation > 0:
                self._make_current()  # it takes over
        self.signal(signal.SIGUSR1)

    def leave(self) -> None:
        """Let batches in flight end, and the driver after them; from now on, that stays so."""
        with self._changing:
            self._is_leaving = True
            if (assignment := self._assignment()) is not None:
                self._write(drained(assignment))
        self.signal(signal.SIGUSR1)

    def terminate(self) -> None:
        """Ask the driver's Python to exit, once."""
        if not self._is_terminated:
            self._is_terminated = self.signal(signal.SIGTERM)

    def end_shim(self) -> bool:
        """Have the shim ask the driver's Python to exit, and limit the time for that.

        Returns False if there is no driver yet.
        """
        if (ident := self.ident()) is None:
            return False
        if not identities.send(ident.shim_pid, ident.shim_start_time, signal.SIGTERM):
            self.signal(signal.SIGTERM)
        return True

    def signal(self, number: signal.Signals) -> bool:
        """Send a signal to the driver's Python; return False if that is not known to exist."""
        ident = self.ident()
        return ident is not None and identities.send(ident.pid, ident.start_time, number)

    def kill(self) -> None:
        """SIGKILL everything but the shim, which reports the exit."""
        if (ident := self.ident()) is not None:
            identities.send(ident.pid, ident.start_time, signal.SIGKILL)
            if ident.jvm_pid is not None:
                identities.send(ident.jvm_pid, ident.jvm_start_time, signal.SIGKILL)
        for pid in identities.descendants(os.getpid()):
            started = identities.start_time(pid)
            if f" {SHIM} " not in identities.command_line(pid):
                identities.send(pid, started, signal.SIGKILL)

    def ident(self) -> Ident | None:
        """Return the identities of the driver's processes; None if they are not known yet."""
        text = read_file(self.folder.control / IDENT)
        return None if text is None else Ident.loads(text)

    def has_reported(self) -> bool:
        """Return whether the shim has written the exit."""
        return (self.folder.control / EXIT).exists()

    def see_heartbeat(self) -> None:
        """Set the time of the file by which the driver sees that the control plane responds."""
        with suppress(OSError):  # no space: the driver's store may respond
            (self.folder.control / HOST_SEEN).touch(mode=0o600)

    def _assignment(self) -> Assignment | None:
        text = read_file(self.folder.control / ASSIGNMENT)
        return None if text is None else Assignment.loads(text)

    def _write(self, assignment: Assignment) -> None:
        replace_file(self.folder.control / ASSIGNMENT, assignment.dumps())

    def _make_current(self) -> None:
        path = current_file(self.folder.root.parent)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        replace_file(path, Current(self.spec.epoch, str(self.folder.root)).dumps())


def read_bytes_of_mount(path: Path) -> bytes:
    """Return a mounted file's content: Kubernetes makes each of these a link."""
    return read_bytes(path.resolve(strict=True))


# --- downwards ------------------------------------------------------------------------


class Down:
    """Asks for news, and carries them out."""

    def __init__(self, line: Line, driver: DriverInPod, over: threading.Event) -> None:
        self._line, self._driver, self._over = line, driver, over
        self._seen = ""
        self._notes = Notes("news")

    def run(self) -> None:
        """Ask until the agent ends; wait between failed requests."""
        try:
            self._run()
        finally:
            self._line.close()

    def _run(self) -> None:
        pause = PAUSE_S
        while not self._over.is_set():
            try:
                self._ask()
                self._notes.fine()
                pause = PAUSE_S
            except (Unanswered, OSError, ValueError, TypeError, KeyError) as error:
                self._notes.problem(str(error) or type(error).__name__)
                self._over.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def _ask(self) -> None:
        asked = _clock()
        status, body = self._line.ask(
            "GET", f"/news?seen={quote(self._seen)}", limit_s=POLL_S + ANSWER_S
        )
        if status == http.client.GONE:
            self._driver.superseded.set()
            raise Unanswered("the control plane says that this driver has ended")
        if status != http.client.OK:
            raise Unanswered(_told(status, body))
        news = News.loads(body.decode())
        age = news.heartbeat_age_s
        # An answer that was late says nothing about now.
        is_prompt = _clock() - asked < POLL_S + ANSWER_S / 2
        if age is not None and age < SILENT_AFTER.total_seconds() and is_prompt:
            self._driver.see_heartbeat()
        if news.superseded:
            self._driver.superseded.set()
        if news.assignment is not None:
            self._driver.assign(news.assignment)
        if news.terminate:
            self._driver.terminate()
        self._seen = news.digest


def _clock() -> float:
    """Return seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _told(status: int, body: bytes) -> str:
    text = " ".join(body[:200].decode(errors="replace").split())
    return f"the control plane answered {status} {text}".strip()


# --- upwards --------------------------------------------------------------------------


@dataclass(slots=True)
class Sent:
    """What the control plane has of one file."""

    signature: tuple[int, int, int] | None = None  # inode, size, time; None: look again
    inode: int = 0
    offset: int | None = None  # None: nothing yet, so its next part begins it anew


@dataclass(slots=True)
class Up:
    """Sends the driver's files as they change: `STATUS` first, `EXIT` last."""

    line: Line
    driver: DriverInPod
    over: threading.Event
    progress_at: float = field(default_factory=time.monotonic)
    all_sent: threading.Event = field(default_factory=threading.Event)  # the exit included
    _nothing_left: threading.Event = field(default_factory=threading.Event)  # in the last round
    _sent: dict[str, Sent] = field(default_factory=dict)  # by the path in the channel
    _exit_seen_at: float | None = None
    _notes: Notes = field(default_factory=lambda: Notes("files"))
    _rejected: dict[str, Notes] = field(default_factory=dict)

    def run(self) -> None:
        """Send until the agent ends; wait between failed requests."""
        try:
            self._run()
        finally:
            self.line.close()

    def _run(self) -> None:
        pause = PAUSE_S
        while not self.over.is_set():
            try:
                more = self._round()
                self._notes.fine()
                pause = PAUSE_S
                if not more:
                    self._nothing_left.set()
                    self.over.wait(SEND_EVERY_S)
            except (Unanswered, OSError) as error:
                self._notes.problem(str(error) or type(error).__name__)
                self.over.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)

    def wait_for_rest(self, limit_s: float) -> None:
        """Wait until a round that begins after now has left nothing to send, or for the limit."""
        for _ in range(2):  # the first may have begun before
            self._nothing_left.clear()
            self._nothing_left.wait(limit_s / 2)

    def _round(self) -> bool:
        """Send what has changed, at most one part of each file; return whether there is more.

        Whoever finds the exit in the control plane also finds the driver's last words there.
        """
        has_reported = self.driver.has_reported()
        own = self.driver.folder.own
        more = False
        for name in (STATUS, IDENT, LAST_SEQ):
            self._whole(name)
        for name in GROWING:
            more |= self._part(own / name, f"/files/{name}", MOST_OF_GROWING)
        more |= self._spool(own / spool.FOLDER)
        if has_reported:
            self._exit_seen_at = self._exit_seen_at or time.monotonic()
            if not more or time.monotonic() - self._exit_seen_at > REST_FIRST_S:
                self._whole(EXIT)
                if not more:
                    self.all_sent.set()
        return more

    def _spool(self, folder: Path) -> bool:
        try:
            names = set(filter(_SEGMENT.fullmatch, names_in(folder)))
        except OSError:  # there is none, or users' code has replaced it with something else
            return False
        more = False
        for name in sorted(names)[-spool.MOST_SEGMENTS :]:
            more |= self._part(folder / name, f"/files/spool/{name}", spool.MOST_OF_SEGMENT)
        for path in [path for path in self._sent if path.startswith("/files/spool/")]:
            if path.rpartition("/")[2] not in names:
                self._put("DELETE", path, path, None)
                self._sent.pop(path)
        return more

    def _whole(self, name: str) -> None:
        """Send a file as a whole if it has changed."""
        root = self.driver.folder.root
        file = (root / "control" if name in (IDENT, EXIT) else root / WHOLE[name]) / name
        sent = self._sent.setdefault(f"/files/{name}", Sent())
        found = _signature(file)
        if found is None or found == sent.signature:
            return
        try:
            data = read_bytes(file, within=root, most=MOST_OF_WHOLE)
        except OSError:  # users' code has replaced it with something else, or it is too large
            return
        self._put("PUT", f"/files/{name}", f"/files/{name}", data)
        sent.signature = found  # taken before the content: a change since then is found

    def _part(self, file: Path, path: str, most: int) -> bool:
        """Send the next part of a growing file; return whether there is more of it.

        What is beyond `most` bytes is not accepted, so it is not sent.
        """
        sent = self._sent.setdefault(path, Sent())
        found = _signature(file)
        if found is None or found == sent.signature:
            return False
        inode, size, _ = found
        if inode != sent.inode or (sent.offset is not None and size < sent.offset):
            sent.inode, sent.offset = inode, None  # another file, or the same one emptied
        at = sent.offset or 0
        try:
            descriptor = open_plain(file, within=self.driver.folder.root)
        except OSError:
            return False
        with os.fdopen(descriptor, "rb") as opened:
            opened.seek(at)
            data = opened.read(max(0, min(MOST_OF_PART, most - at)))
        if data or sent.offset is None:
            status, body = self._put("PUT", f"{path}?at={at}", path, data)
            if status == http.client.CONFLICT:
                theirs = _size_in(body)
                sent.offset = theirs if theirs is not None and theirs <= size else None
                return True
            if status in _NOT_THIS_ONE:
                sent.signature = found  # until it changes
                return False
            sent.offset = at + len(data)
        if (sent.offset or 0) < min(size, most):
            return True
        sent.signature = found
        return False

    def _put(self, method: str, address: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        """Send a request for one file; raise `Unanswered` unless the answer is about that file."""
        status, body = self.line.ask(method, address, data)
        if status in _NOT_THIS_ONE:
            self._rejected.setdefault(path, Notes(path)).problem(_told(status, body))
        elif status != http.client.CONFLICT and status >= 300:
            raise Unanswered(_told(status, body))
        self.progress_at = time.monotonic()
        return status, body


def _signature(file: Path) -> tuple[int, int, int] | None:
    """Return what changes with a file's content; None if it is no regular file."""
    try:
        status = status_of(file)
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _size_in(body: bytes) -> int | None:
    """Return the size in an answer; None if there is none."""
    try:
        size = json.loads(body)["size"]
    except (ValueError, KeyError, TypeError):
        return None
    return size if isinstance(size, int) and size >= 0 else None


# --- the agent ------------------------------------------------------------------------


class ShimFailed(Exception):
    """The shim did not take over; the message says why."""


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
                self._wait(driver, up, next_signals)
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
        """Start the shim; return once it has locked its folder and left this process's control.

        Raises `ShimFailed`.
        """
        passed = {
            name: value for name, value in self._environ.items() if not name.startswith(_OF_AGENT)
        }
        secrets = {
            file.name.removeprefix(ENV_PREFIX): read_bytes_of_mount(file).decode()
            for file in self._secrets(ENV_PREFIX)
        }
        env = {**passed, **secrets, "PYTHONPATH": ":".join(places.import_path())}
        log_file = driver.folder.control / SHIM_LOG
        process = start_shim(driver.folder.root, env)
        try:
            code = process.wait(SHIM_TAKES_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ShimFailed(f"The shim did not take over within {SHIM_TAKES_S} s.") from None
        if code != 0:
            reason = read_tail(log_file, 2000).strip().rpartition("\n")[2]
            raise ShimFailed(f"The shim exited with code {code}: {reason}")

    def _wait(self, driver: DriverInPod, up: Up, next_signals: Callable[[float], set[int]]) -> None:
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
                if now - max(up.progress_at, ended_at) > LAST_FILES_S:
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
