"""The control plane's end of the channel to drivers' pods: their files, and the news for them.

A pod's files arrive in the control plane's copy of its driver's folder, where the launcher reads
them as it reads those of a driver on a host. Everything that arrives was written next to users'
code: names come from fixed lists, sizes are limited, and no link is followed.
"""

import errno
import hmac
import json
import os
import re
import stat
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path

from django.conf import settings
from django.db.models.functions import Now

from controlplane import hosts, nudge
from headgate_ground import spool
from headgate_ground.files import NotPlain, open_folder, read_file
from headgate_ground.untrusted import make_folder, remove_file
from queries.domain.protocol import ASSIGNMENT, EXIT, STATUS, Assignment, Current
from queries.domain.states import OPEN_DRIVER_STATES, Reason
from queries.driver_folder import DriverFolder, current_file, read_current
from queries.launchers.pods.layout import (
    ARCHIVES,
    ASKED,
    GROWING,
    MADE,
    MOST_OF_GROWING,
    MOST_OF_PART,
    MOST_OF_WHOLE,
    TERMINATE,
    WHOLE,
    Made,
    News,
)
from queries.models.drivers import Driver, Host

#: How long files are accepted after the end of a driver: the end of its log may still be arriving.
FILES_AFTER_END = timedelta(minutes=10)
SEGMENT = re.compile(rf"[0-9]{{20}}{re.escape(spool.SUFFIX)}")
#: Files whose arrival may change what supervision decides.
_DECISIVE = (STATUS, EXIT)
_SHA256 = re.compile(r"[0-9a-f]{64}")


class OtherSize(Exception):
    """A part does not begin where the file ends."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the file has {size} bytes")
        self.size = size


class TooLarge(Exception):
    """A file would be larger than is accepted."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod of one driver, as far as it has proven to be that."""

    driver: int  # primary key
    epoch: int
    folder: DriverFolder  # the control plane's copy
    wanted: bool  # its row is open, and its host has not been declared gone
    sends: bool  # its files are still accepted
    heartbeat_age_s: float | None  # of its host, by the database's clock


def admit(epoch: int, *, token: str, uid: str) -> Pod | None:
    """Return the pod that a request comes from; None if it has not proven to be that of the epoch.

    The token is that of the driver and its epoch. The UID must be that of the pod that the launcher
    has created, once it has recorded it.
    """
    columns = ("pk", "application__name", "host", "state", "end_wanted", "ended_at")
    row = (
        Driver.objects.filter(epoch=epoch)
        .annotate(now=Now())
        .values_list(*columns, "now", named=True)
        .first()
    )
    if row is None:
        hmac.compare_digest(hosts.pod_token(0, epoch).encode(), token.encode())
        return None
    if not hmac.compare_digest(hosts.pod_token(row.pk, epoch).encode(), token.encode()):
        return None
    folder = DriverFolder.of(settings.DRIVERS_DIR / row.application__name / str(epoch))
    made = read_file(folder.control / MADE)
    created = Made.loads(made).uid if made is not None else ""
    if created and created != uid:
        return None
    is_open = row.state in OPEN_DRIVER_STATES
    return Pod(
        driver=row.pk,
        epoch=epoch,
        folder=folder,
        wanted=is_open and row.end_wanted != Reason.HOST_GONE,
        sends=is_open or _is_recent(row.ended_at, row.now),
        heartbeat_age_s=_heartbeat_age_s(row.host),
    )


def _is_recent(ended_at: datetime | None, now: datetime) -> bool:
    return ended_at is None or now - ended_at < FILES_AFTER_END


def _heartbeat_age_s(host: str) -> float | None:
    """Return the age of a host's newest heartbeat, by the database's clock; None if unknown."""
    row = Host.objects.filter(name=host).annotate(now=Now()).first()
    if row is None or row.seen_at is None:
        return None
    return max(0.0, (row.now - row.seen_at).total_seconds())


# --- downwards ------------------------------------------------------------------------


def news_for(pod: Pod) -> News:
    """Return what the control plane wants of a pod's driver now, and note that it was asked."""
    with suppress(OSError):  # no space: then it counts as not heard of
        (pod.folder.control / ASKED).touch(mode=0o600)
    text = read_file(pod.folder.control / ASSIGNMENT)
    current = read_current(pod.folder.root.parent)
    news = News(
        digest="",
        assignment=None if text is None else Assignment.loads(text),
        terminate=(pod.folder.control / TERMINATE).exists(),
        superseded=current is not None and Current.loads(current).epoch > pod.epoch,
        heartbeat_age_s=None,
    )
    digest = sha256(news.dumps().encode()).hexdigest()
    return replace(news, digest=digest, heartbeat_age_s=pod.heartbeat_age_s)


def marks(pod: Pod) -> tuple[tuple[int, int] | None, ...]:
    """Return what differs once the files behind the news have changed."""
    control = pod.folder.control
    files = (control / ASSIGNMENT, control / TERMINATE, current_file(pod.folder.root.parent))
    return tuple(map(_mark, files))


def _mark(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def archive_of(pod: Pod, sha256: str) -> Path | None:
    """Return the file with this SHA-256 that the pod may have; None if there is none."""
    text = read_file(pod.folder.control / ARCHIVES) if _SHA256.fullmatch(sha256) else None
    path = json.loads(text).get(sha256) if text is not None else None
    return None if path is None else Path(path)


# --- upwards --------------------------------------------------------------------------


def accept_whole(pod: Pod, name: str, data: bytes) -> None:
    """Replace a file in the copy atomically; `name` is one of `WHOLE`.

    Raises `TooLarge`, and `OSError` if the copy cannot be written.
    """
    if len(data) > MOST_OF_WHOLE:
        raise TooLarge
    assert name in WHOLE
    own = open_folder(pod.folder.own)
    draft = f".{name}.{uuid.uuid4().hex}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(draft, flags, 0o600, dir_fd=own), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, name, src_dir_fd=own, dst_dir_fd=own)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=own)
            raise
        os.fsync(own)
    finally:
        os.close(own)
    if name in _DECISIVE:
        nudge.reconcile_driver_soon(pod.driver)


def accept_part(pod: Pod, name: str, at: int, data: bytes) -> None:
    """Write a part of one of the `GROWING` files; a part at 0 begins the file anew.

    Raises `OtherSize` if the file ends elsewhere, `TooLarge`, and `OSError`.
    """
    assert name in GROWING
    own = open_folder(pod.folder.own)
    try:
        _write_part(own, name, at, data, MOST_OF_GROWING)
    finally:
        os.close(own)


def accept_segment(pod: Pod, name: str, at: int, data: bytes) -> None:
    """Write a part of a segment of the spool, in the same way as `accept_part`."""
    assert SEGMENT.fullmatch(name)
    folder = make_folder(pod.folder.own / spool.FOLDER)
    try:
        if at == 0:
            segments = {other for other in os.listdir(folder) if SEGMENT.fullmatch(other)}
            if len(segments | {name}) > spool.MOST_SEGMENTS:
                raise TooLarge
        _write_part(folder, name, at, data, spool.MOST_OF_SEGMENT)
    finally:
        os.close(folder)


def _write_part(folder: int, name: str, at: int, data: bytes, most: int) -> None:
    """Write a part at its place, so that a repeated request changes nothing."""
    if len(data) > MOST_OF_PART or at + len(data) > most:
        raise TooLarge
    # Only a beginning creates a file: a name costs something only together with its content.
    made = os.O_CREAT if at == 0 else 0
    flags = os.O_WRONLY | made | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    except FileNotFoundError:
        raise OtherSize(0) from None
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NotPlain(errno.EINVAL, "is not a regular file", name)
        if at == 0:
            file.truncate(0)
        elif status.st_size != at:
            raise OtherSize(status.st_size)
        rest = memoryview(data)
        while rest:
            written = os.pwrite(file.fileno(), rest, at)
            rest, at = rest[written:], at + written


def drop_segment(pod: Pod, name: str) -> None:
    """Remove a segment that its driver has removed; does nothing if it is gone."""
    assert SEGMENT.fullmatch(name)
    remove_file(pod.folder.own / spool.FOLDER / name)
