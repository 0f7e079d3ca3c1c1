"""The channel of a pod's driver, from inside: news come down, and the driver's files go up.

While the web process does not respond, both are tried again, and the driver runs on.
"""

import http.client
import json
import os
import re
import ssl
import stat
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

from headgate_ground import spool
from headgate_ground.files import open_plain, read_bytes
from headgate_ground.untrusted import names_in, status_of
from queries.domain.hosts import SILENT_AFTER
from queries.domain.protocol import EXIT, IDENT, LAST_SEQ, STATUS
from queries.launchers.pods.driver import DriverInPod
from queries.launchers.pods.layout import (
    GROWING,
    MOST_OF_GROWING,
    MOST_OF_PART,
    MOST_OF_WHOLE,
    POLL_S,
    WHOLE,
    News,
)
from queries.launchers.pods.notes import Notes

SEND_EVERY_S = 0.3  # between looks at the driver's files
ANSWER_S = 15.0  # for an answer, beyond the time that the web process may hold it
PAUSE_S, LONGEST_PAUSE_S = 0.25, 5.0  # after a failed request
REST_FIRST_S = 15.0  # for the log and the spool to arrive before the exit, which is read last
#: Answers about one file: it is not accepted in this form, and the others do not wait for it.
_NOT_THIS_ONE = frozenset({400, 404, 405, 413})
_SEGMENT = re.compile(rf"[0-9]{{20}}{re.escape(spool.SUFFIX)}")


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


# --- downwards ------------------------------------------------------------------------


class Down:
    """Asks for news, and carries them out."""

    def __init__(self, line: Line, driver: DriverInPod, over: threading.Event) -> None:
        self._line, self._driver, self._over = line, driver, over
        self._seen = ""
        self._notes = Notes("news")
        self.heard_at = time.monotonic()

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
        self.heard_at = time.monotonic()


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
