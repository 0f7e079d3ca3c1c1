"""What a driver within bubblewrap's walls sees of the file system: named folders, all else is not.

Folders, never single files: a file that is replaced by rename would stay the old one in there.
The innermost folder decides, as with data roots.
"""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from queries.domain.checkpoints.lock_files import local_path, lock_folder
from queries.domain.probes.questions import TASK, PreflightTask, XrayTask, read_task
from queries.domain.protocol import TMP, DriverSpec
from queries.driver_folder import DriverFolder, current_file
from queries.files import read_file
from queries.launchers.process.environment import REPOSITORY

#: The system, where it is; /sys tells the JVM its processors and its control group's memory.
_SYSTEM = "/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /sys /run/systemd/resolve"
#: Of our code a driver runs these; the rest of the repository it does not see.
_CODE = ("queries", "listeners", "headgate_async")
#: Folders and files that the environment names.
_NAMED = ["SPARK_HOME", "HADOOP_CONF_DIR", "KRB5_CONFIG", "SSL_CERT_FILE", "SSL_CERT_DIR"]
#: Where the control plane's own files may lie in /etc (docs/operations.md): its TLS key among them.
_OURS = "/etc/headgate"
#: What only root may read in /etc; a worker that is root would hand it on.
_ROOTS_OWN = "/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers"
_ROOTS_FOLDERS = "/etc/ssh /etc/ssl/private /etc/sudoers.d"


@dataclass(frozen=True, slots=True)
class Mounts:
    """What bubblewrap is asked to show."""

    options: list[str]
    descriptors: tuple[int, ...]  # of folders that it mounts; closed by whoever starts it


class Sees(StrEnum):
    """How a folder is seen; the later one wins where two name the same folder."""

    NOTHING = "nothing"
    SCRATCH = "scratch"  # written to a folder of the driver's own, gone with it
    READ = "read"
    WRITE = "write"


def mounts(spec: DriverSpec, folder: DriverFolder, environ: Mapping[str, str]) -> Mounts:
    """Return what a driver sees of the file system.

    Folders that drivers write to are opened here, and mounted as they were opened: a driver may
    put a link in the place of one. What a link leads to is not shown.
    """
    scratch = str(folder.own / TMP)
    table: dict[str, Sees] = {}
    opened: list[int] = []
    for kind, path in _seen(spec, folder, environ):
        table[path] = max(kind, table.get(path, kind), key=list(Sees).index)
    made: list[str] = []
    shown: dict[str, Sees] = {}
    for path, wanted in sorted(table.items(), key=lambda each: Path(each[0]).parts):
        outer = next((kind for at, kind in reversed(shown.items()) if _is_in(path, at)), None)
        seen = _as_it_is(path, wanted, outer)
        if seen == outer == Sees.WRITE:
            continue
        found: int | None = None
        if seen is Sees.WRITE and path != str(folder.own):
            found = _open_own(path)
            seen = _absent(outer) if found is None else seen
        if seen is None:
            continue
        if found is not None:
            opened.append(found)
            made += ("--bind-fd", str(found), path)
        else:
            made += _mount(path, seen, scratch)
        shown[path] = seen
    hidden = [path for path, kind in shown.items() if kind is Sees.NOTHING]
    made += ["--proc", "/proc", "--dev", "/dev"]
    if os.geteuid() == 0:
        made += _hide_roots_own()
    for path in (*hidden, "/"):  # last: until then the places for further folders are made there
        made += ["--remount-ro", path]
    return Mounts([*made, "--chdir", str(folder.own)], tuple(opened))


def _open_own(path: str) -> int | None:
    """Open a folder that no link leads to; None where one does."""
    try:
        found = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    if os.readlink(f"/proc/self/fd/{found}") == path:
        return found
    os.close(found)
    return None


def _seen(
    spec: DriverSpec, folder: DriverFolder, environ: Mapping[str, str]
) -> Iterator[tuple[Sees, str]]:
    for path in (*_SYSTEM.split(), *_python(), *_java(environ), *_named(environ)):
        yield Sees.READ, path
    yield Sees.NOTHING, _OURS
    for package in _CODE:
        yield Sees.READ, str(REPOSITORY / package)
    for kind, places in ((Sees.NOTHING, spec.own_folders), (Sees.WRITE, spec.data_roots)):
        found = (local_path(place) for place in places)
        yield from ((kind, str(path)) for path in found if path is not None)
    for root in readable(spec, folder):
        yield Sees.READ, root
    for place in writable(spec, folder):
        yield Sees.WRITE, place
    yield Sees.READ, str(current_file(folder.root.parent).parent)
    yield Sees.READ, str(folder.control)
    yield Sees.WRITE, str(folder.own)
    yield Sees.SCRATCH, "/tmp"


def _as_it_is(path: str, kind: Sees, outer: Sees | None) -> Sees | None:
    """Return how a folder is mounted within what lies around it; None where it needs no mount."""
    if kind is Sees.NOTHING:
        return kind if outer not in (None, kind) and os.path.isdir(path) else None
    if kind is Sees.SCRATCH or os.path.isdir(path):
        return kind
    return _absent(outer) if kind is Sees.WRITE else None


def _absent(outer: Sees | None) -> Sees | None:
    """Return how a folder to write to is shown that is not there.

    What is written to it must fail, and not be gone with the scratch folder.
    """
    return Sees.NOTHING if outer is Sees.SCRATCH else None


def readable(spec: DriverSpec, folder: DriverFolder) -> list[str]:
    """Return the folders of a driver's code and jars, of a preflight's earlier code too."""
    task = _task(folder)
    old_code = task.old_code_roots if isinstance(task, PreflightTask) else ()
    jars = (str(Path(jar).parent) for jar in spec.jars)
    return [*spec.code_roots, *old_code, *dict.fromkeys(jars)]


def writable(spec: DriverSpec, folder: DriverFolder) -> list[str]:
    """Return the local folders of a driver's checkpoints, of their locks, and of a probe's task."""
    found = list(spec.folders)
    task = _task(folder)
    named: tuple[str, ...] = ()
    if isinstance(task, PreflightTask):
        named = (task.scratch, task.copy, task.sink_copy)
    elif isinstance(task, XrayTask):
        named = (task.checkpoint,)
    found += [str(path) for place in named if (path := local_path(place)) is not None]
    for place in spec.checkpoints:
        path, lock = local_path(place), lock_folder(place)
        if path is not None and lock is not None:
            found += [str(path), str(lock)]
    return found


def _task(folder: DriverFolder) -> object:
    """Return a probe's task; None of a driver, and of what the probe itself will refuse."""
    text = read_file(folder.control / TASK)
    try:
        return read_task(text) if text else None
    except (ValueError, KeyError, TypeError):
        return None


def _mount(path: str, kind: Sees, scratch: str) -> Iterable[str]:
    if kind is Sees.NOTHING:
        return ("--tmpfs", path)
    if kind is Sees.SCRATCH:
        return ("--bind", scratch, path)
    if kind is Sees.READ and Path(path).is_symlink() and path in _SYSTEM.split():
        return ("--symlink", os.readlink(path), path)  # /bin -> usr/bin
    return ("--ro-bind" if kind is Sees.READ else "--bind", path, path)


def _python() -> set[str]:
    """Return the folders of this Python: of its environment, and of what that is made from."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    return prefixes | {os.path.realpath(prefix) for prefix in prefixes}


def _java(environ: Mapping[str, str]) -> Iterator[str]:
    if home := environ.get("JAVA_HOME"):
        yield from {home, os.path.realpath(home)}
    elif found := shutil.which("java", path=environ.get("PATH")):
        yield str(Path(os.path.realpath(found)).parent.parent)


def _named(environ: Mapping[str, str]) -> Iterator[str]:
    for name in _NAMED:
        if path := environ.get(name):
            folder = path if os.path.isdir(path) else str(Path(path).parent)
            if len(Path(folder).parts) > 1:
                yield from {folder, os.path.realpath(folder)}


def _hide_roots_own() -> Iterator[str]:
    for path in _ROOTS_FOLDERS.split():
        if os.path.isdir(path):
            yield from ("--perms", "0000", "--tmpfs", path)
    for path in _ROOTS_OWN.split():
        if os.path.isfile(path):
            yield from ("--ro-bind", "/dev/null", path)


def _is_in(path: str, folder: str) -> bool:
    return folder in ("/", path) or path.startswith(f"{folder}/")
