"""Who owns a checkpoint, and a driver's ownership of one that is not local, watched while it
runs.

The watch itself is Java (`queries/jvm/Fence.java`): it halts the JVM even if this Python process is
stopped or waits for users' code. So a driver is never ended for being slow: neither code that holds
the GIL nor a full garbage collection nor a busy host delays a response that matters. A stopped JVM
does not poll, but it does not write either; when it wakes, it polls within an interval, and the
store rejects its next log entry (`queries/jvm/CheckpointFiles.java`).

Such a checkpoint has no lock. Its owner is the driver that created the object with the highest
number next to it:

1. list the objects, and compare this start with the owner that the highest one names;
2. create the next number, which only one of several starters can (exclusive creation);
3. list again: an object above one's own means that another start was faster;
4. after an owner of another installation or host, wait until its driver must have halted, and list
   once more.

The number, not the epoch, names the object: two starters with different epochs must compete for the
same name. The file `owner.json` of earlier releases counts as number 0.

S3A creates exclusively with `If-None-Match` (Hadoop 3.4.2 and later), which `must` enforces, so an
older Hadoop fails instead of overwriting. Some stores ignore the condition, so the second creation
of one's own object must fail. HDFS creates without overwriting. Elsewhere nothing is proven: the
owner is compared, and a warning says that the checkpoint is not fenced.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError

from queries.domain.checkpoints.ownership import (
    CALL_S,
    LONGEST_WATCH_S,
    Former,
    fence_s,
    owner_file,
    owner_number,
    owner_object,
    owners_folder,
    silence_s,
    superfluous_owners,
    takeover_s,
)
from queries.domain.protocol import CUT_OFF, EXIT_CHECKPOINT_LOST
from queries.runtime.checkpoints.logs import read_remote
from queries.runtime.failures.error_capture import refusal


class CheckpointRefused(Exception):
    """The checkpoint is not available; `why` is held, own, fenced or foreign.

    `run` is this driver's run that holds the checkpoint; None if another process holds it.
    """

    def __init__(
        self,
        why: str,
        message: str,
        holder_pid: int | None = None,
        *,
        run: int | None = None,
        owner_epoch: int | None = None,
    ) -> None:
        super().__init__(message)
        self.error = refusal(why, message, holder_pid, owner_epoch=owner_epoch)
        self.run = run


@dataclass(frozen=True, slots=True)
class Owner:
    """A driver, as owner files name it."""

    installation: str
    driver: int
    host: str
    watch_s: float = 0.0  # between its looks for a later owner; 0: it does not look
    ended: tuple[str, ...] = ()  # hosts of former owners whose end was seen, besides its own

    def text(self, epoch: int) -> str:
        """Return the content of an owner file for a run with this epoch."""
        about = {"installation": self.installation, "driver": self.driver, "host": self.host}
        watch = {"watch_s": self.watch_s} if self.watch_s else {}
        return json.dumps({**about, **watch, "epoch": epoch}, sort_keys=True)

    def compare(self, location: str, path: str, text: str, epoch: int, *, takeover: bool) -> None:
        """Raise `CheckpointRefused` if the owner in a file excludes a start with this epoch."""
        try:
            owner = json.loads(text)
            installation, owner_epoch = str(owner["installation"]), int(owner["epoch"])
        except (ValueError, KeyError, TypeError) as error:
            if takeover:
                return
            raise CheckpointRefused(
                "foreign", f"The owner file {path} of {location} cannot be read: {error}."
            ) from error
        if installation != self.installation and not takeover:
            raise CheckpointRefused(
                "foreign",
                f"The checkpoint {location} belongs to another installation ({installation}, "
                f"last on host {owner.get('host', '?')}).",
            )
        if installation == self.installation and owner_epoch > epoch:
            raise CheckpointRefused(
                "fenced",
                f"A later start (epoch {owner_epoch}) has taken over the checkpoint {location}; "
                f"this one is epoch {epoch}.",
                owner_epoch=owner_epoch,
            )


def former(text: str, succeeded_s: float) -> Former:
    """Return the owner that a file names; one that cannot be read is of another installation."""
    try:
        owner = json.loads(text)
        watch_s = float(owner.get("watch_s", 0))
        return Former(str(owner["installation"]), str(owner["host"]), watch_s, succeeded_s)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Former("", "", 0.0, succeeded_s)


@dataclass(frozen=True, slots=True)
class Fence:
    """Begins the watches of one driver."""

    jvm: Any
    conf: Callable[[], Any]  # Hadoop's configuration
    heartbeat: Path  # its time is that of the last heartbeat of this host's worker
    watch_s: float  # between two questions
    missing: str = ""  # why the JVM lacks our classes, "" if it has them

    def watch(self, location: str, number: int) -> Any:
        """Halt the JVM once an owner object above the number exists; `end()` ends the watch."""
        following = owner_object(owners_folder(location), number + 1)
        return self.jvm.headgate.Fence.begin(
            self.conf(),
            self.jvm.org.apache.hadoop.fs.Path(following),
            str(self.heartbeat),
            _ms(self.watch_s),
            _ms(CALL_S),
            _ms(silence_s(self.watch_s)),
            EXIT_CHECKPOINT_LOST,
            CUT_OFF,
        )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


logger = logging.getLogger(__name__)

_CONDITIONAL = "fs.option.create.conditional.overwrite"  # Options.CreateFileOptionKeys of Hadoop
#: File systems whose creation without overwriting is atomic: HDFS, directly and over HTTP.
_EXCLUSIVE = frozenset({"hdfs", "webhdfs", "swebhdfs"})
#: How Hadoop and stores say that they cannot create by condition: unknown key, switched off, 501.
_UNSUPPORTED = frozenset(
    {
        "IllegalArgumentException",
        "PathIOException",
        "UnsupportedOperationException",
        "AWSUnsupportedFeatureException",
    }
)

#: Seconds that a start waits for another one to finish writing its object, in steps. HDFS shows an
#: object as empty until then, usually for a few milliseconds.
_WRITTEN_WITHIN_S, _LOOK_S = 1.0, 0.05

#: Returns Hadoop's file system for a location, and the location in that file system's form.
Find = Callable[[str], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Ownership:
    """A checkpoint that this driver owns."""

    number: int
    not_fenced: str = ""  # why a later start cannot be kept apart from this one, "" if it can
    wait_s: float = 0.0  # from now until no former owner elsewhere can write any more


class NotExclusive(Exception):
    """The store cannot create exclusively; the message says why."""


class Owners:
    """The owner objects of checkpoints that are not local, as one driver takes them."""

    def __init__(self, owner: Owner, find: Find) -> None:
        self._owner = owner
        self._find = find

    def own(self, location: str, epoch: int, *, takeover: bool) -> Ownership:
        """Own a checkpoint; raise `CheckpointRefused` if its owner excludes this or was faster."""
        folder = owners_folder(location)
        before = self._list(folder)
        self._compare(location, folder, sorted(before, reverse=True), epoch, takeover=takeover)
        number = max(before, default=0) + 1
        path, text = owner_object(folder, number), self._owner.text(epoch)
        not_fenced = ""
        try:
            self._create(path, text)
        except NotExclusive as error:
            not_fenced = str(error)
            self._overwrite(path, text)
        written_ms_by_number = self._still(location, number)
        if self._read(path) != text:
            raise _faster(location, path)
        owner = self._owner
        wait_s = takeover_s(
            self._formers(location, folder, written_ms_by_number),
            installation=owner.installation,
            ended={owner.host, *owner.ended},
            watch_s=owner.watch_s,
        )
        self._clean_up(folder, written_ms_by_number)
        return Ownership(number, not_fenced, wait_s)

    def confirm(self, location: str, number: int) -> None:
        """Raise `CheckpointRefused` if another start owns the checkpoint by now."""
        self._still(location, number)

    def _still(self, location: str, number: int) -> dict[int, int]:
        """Return the objects with their times if this number is the highest; else raise."""
        folder = owners_folder(location)
        written_ms_by_number = self._list(folder)
        if max(written_ms_by_number, default=0) != number:
            raise _faster(location, owner_object(folder, max(written_ms_by_number, default=number)))
        return written_ms_by_number

    def _formers(
        self, location: str, folder: str, written_ms_by_number: dict[int, int]
    ) -> Iterator[Former]:
        """Yield the earlier owners whose drivers may not have noticed their successors."""
        own, *earlier = sorted(written_ms_by_number, reverse=True)
        succeeded_at = written_ms_by_number[own]
        files = [(owner_object(folder, number), written_ms_by_number[number]) for number in earlier]
        for path, at in (*files, (owner_file(location), 0)):
            succeeded_s = (written_ms_by_number[own] - succeeded_at) / 1000
            if succeeded_s > fence_s(LONGEST_WATCH_S):
                return
            if text := self._read(path):
                yield former(text, succeeded_s)
            succeeded_at = at

    def _compare(
        self, location: str, folder: str, newest: list[int], epoch: int, *, takeover: bool
    ) -> None:
        """Compare with the newest owner that can be read.

        An object that stays empty belongs to a start that was paused or ended while it wrote it. If
        it continues, it lists again and finds the number above its own.
        """
        for path in (*(owner_object(folder, number) for number in newest), owner_file(location)):
            text = self._read_when_written(path)
            if text:
                self._owner.compare(location, path, text, epoch, takeover=takeover)
                return

    # --- files ------------------------------------------------------------------------

    def _list(self, folder: str) -> dict[int, int]:
        """Return the times, in ms by the store's clock, of the objects in a folder, by number."""
        system, hadoop_path = self._find(folder)
        try:
            statuses = system.listStatus(hadoop_path)
        except Py4JJavaError as error:
            if _kind(error) == "FileNotFoundException":
                return {}
            raise
        times = {
            owner_number(str(status.getPath().getName())): int(status.getModificationTime())
            for status in statuses
        }
        return {number: at for number, at in times.items() if number is not None}

    def _read_when_written(self, path: str) -> str | None:
        end = time.monotonic() + _WRITTEN_WITHIN_S
        while (text := self._read(path)) == "" and time.monotonic() < end:
            time.sleep(_LOOK_S)
        return text

    def _read(self, path: str) -> str | None:
        return read_remote(*self._find(path))

    def _create(self, name: str, text: str) -> None:
        """Create an object that only one process can create; its content then shows which one did.

        Raises `NotExclusive` if the store cannot do that.
        """
        system, hadoop_path = self._find(name)
        try:
            if str(system.getUri().getScheme()) in _EXCLUSIVE:
                stream = system.create(hadoop_path, False)
            else:
                self._create_by_condition(system, hadoop_path, text)
                stream = None
        except Py4JJavaError as error:
            # Stores fail differently, and a creation can succeed although its answer was lost.
            if not system.exists(hadoop_path):
                raise
            logger.info("%s was there already: %s", name, _kind(error))
            return
        if stream is not None:
            _write(stream, text)
            return
        try:
            self._create_by_condition(system, hadoop_path, text)
        except Py4JJavaError as error:
            logger.debug("%s cannot be created again: %s", name, _kind(error))
        else:
            raise NotExclusive("its store ignores the condition that an object is new")

    def _create_by_condition(self, system: Any, hadoop_path: Any, text: str) -> None:
        try:
            builder = system.createFile(hadoop_path).create().recursive()
            stream = builder.must(_CONDITIONAL, True).build()
            _write(stream, text)
        except Py4JJavaError as error:
            if _kind(error) in _UNSUPPORTED:
                scheme = system.getUri().getScheme()
                raise NotExclusive(
                    f"its file system ({scheme}) cannot create an object only if it is new"
                ) from error
            raise

    def _overwrite(self, name: str, text: str) -> None:
        system, hadoop_path = self._find(name)
        _write(system.create(hadoop_path, True), text)

    def _clean_up(self, folder: str, written_ms_by_number: dict[int, int]) -> None:
        """Remove old objects; a failure costs nothing, because the next start tries again."""
        for number in superfluous_owners(written_ms_by_number):
            system, hadoop_path = self._find(owner_object(folder, number))
            try:
                system.delete(hadoop_path, False)
            except Py4JJavaError as error:
                logger.warning("could not remove %s: %s", hadoop_path.toString(), _kind(error))
                return


def _write(stream: Any, text: str) -> None:
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def _kind(error: Py4JJavaError) -> str:
    """Return the class of an exception, without its package."""
    return str(error.java_exception.getClass().getSimpleName())


def _faster(location: str, path: str) -> CheckpointRefused:
    return CheckpointRefused(
        "held", f"Another start was faster: it has taken the checkpoint {location} ({path})."
    )
