"""Who owns a checkpoint: the names of its lock and owner files, and how long its fence takes.

Launchers check these files and drivers lock them, so both must use the same paths. They are stored
in a separate folder, so that a driver can be given access only to the files of its own checkpoints.

A checkpoint that is not local has no lock, but numbered owner objects
(`queries.runtime.checkpoints.owners`).

A driver checks its store every few seconds for a later start that owns its checkpoint, and exits if
there is one. Without a response, it cannot know; therefore a start elsewhere must wait long enough,
and the driver must exit before that.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

FOLDER = ".headgate"
LOCK, OWNER = "lock", "owner.json"

#: How many of a checkpoint's owner objects stay, however old they are.
MAX_OWNERS = 10
#: Milliseconds after which the others are removed: a start that was suspended for less finds the
#: numbers that were taken meanwhile.
MAX_OWNER_AGE_MS = 24 * 60 * 60 * 1000
#: How many are removed at one start, so that it is not delayed.
OWNERS_REMOVED = 20
_NUMBER = re.compile(r"(\d{20})\.json")


def local_path(location: str) -> PurePosixPath | None:
    """Return the path of a checkpoint on the local file system; None for any other location."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        return None
    # Only URIs are escaped; a bare path is taken literally.
    path = PurePosixPath(unquote(parts.path) if parts.scheme else location)
    return path if path.is_absolute() else None


def lock_folder(location: str) -> PurePosixPath | None:
    """Return `<parent>/.headgate/<name>.held`; None if the checkpoint is not local."""
    path = local_path(location)
    return None if path is None else path.parent / FOLDER / f"{path.name}.held"


def lock_file(location: str) -> PurePosixPath | None:
    """Return the file that the drivers of a checkpoint lock; None if it is not local."""
    folder = lock_folder(location)
    return None if folder is None else folder / LOCK


def owner_file(location: str) -> str:
    """Return the file that records a checkpoint's owner: a path, or a URI if it is not local."""
    folder = lock_folder(location)
    if folder is not None:
        return str(folder / OWNER)
    return f"{_beside(location)}.{OWNER}"


def owners_folder(location: str) -> str:
    """Return the URI of the folder with the owner objects of a checkpoint that is not local."""
    return f"{_beside(location)}.owners"


def owner_object(folder: str, number: int) -> str:
    """Return the owner object with a number, in a checkpoint's folder of them."""
    return f"{folder}/{number:020}.json"


def owner_number(name: str) -> int | None:
    """Return the number of an owner object from its file name; None for any other file."""
    match = _NUMBER.fullmatch(name)
    return int(match[1]) if match else None


def superfluous_owners(written_ms_by_number: Mapping[int, int]) -> list[int]:
    """Return the numbers of owner objects that can be removed now, oldest first.

    `written_ms_by_number` maps their numbers to times in ms. All times are the store's own, so no
    clocks are compared.
    """
    newest_numbers = sorted(written_ms_by_number, reverse=True)[:MAX_OWNERS]
    newest = max(written_ms_by_number.values(), default=0)
    old = [number for number, at in written_ms_by_number.items() if newest - at > MAX_OWNER_AGE_MS]
    return sorted(set(old) - set(newest_numbers))[:OWNERS_REMOVED]


def _beside(location: str) -> str:
    """Return the URI that the owner files of a checkpoint that is not local begin with."""
    parent, _, name = location.rstrip("/").rpartition("/")
    return f"{parent}/{FOLDER}/{name}"


#: Longest time that a question to the store may take.
CALL_S = 3.0
#: Longest pause of a driver's JVM that a takeover allows for: a full garbage collection, a busy
#: host.
PAUSE_S = 15.0
#: Longest interval between two questions (HEADGATE_FENCE_WATCH_S).
LONGEST_WATCH_S = 60.0
#: How much earlier than a takeover the old driver ends: one question and one interval.
_MARGIN_S = 5.0


#: Stores tell times in whole seconds, so two of them can be closer together than they look.
_ROUNDED_S = 1.0


@dataclass(frozen=True, slots=True)
class Former:
    """An owner of a checkpoint before this start, as described by its owner object."""

    installation: str  # "" if the object cannot be read
    host: str
    watch_s: float  # between its driver's questions; 0 if unknown
    succeeded_s: float  # from the next owner's object until this start's own, by the store's clock


def takeover_s(
    formers: Iterable[Former], *, installation: str, ended: Collection[str], watch_s: float
) -> float:
    """Return how long a start waits after it has created its own owner object; 0 if at once.

    It waits for former owners whose drivers may not have noticed the next owner yet: all but those
    of this installation on a host in `ended`, whose end has been seen. The start's own host is one
    of them, because another driver starts there only after the exit of the former one has been
    recorded. A pod is a host of its own. The longer of the two sides' intervals counts.
    """
    waits = [
        fence_s(max(watch_s, min(former.watch_s, LONGEST_WATCH_S)))
        - max(0.0, former.succeeded_s - _ROUNDED_S)
        for former in formers
        if former.installation != installation or former.host not in ended
    ]
    return max([0.0, *waits])


def fence_s(watch_s: float) -> float:
    """Return how long a takeover must wait for the old driver, for a given polling interval.

    It need not wait if the death of the old driver is proven on its own host.
    """
    return 3 * watch_s + PAUSE_S


def silence_s(watch_s: float) -> float:
    """Return how long store and control plane must both be silent before a driver exits."""
    return fence_s(watch_s) - _MARGIN_S
