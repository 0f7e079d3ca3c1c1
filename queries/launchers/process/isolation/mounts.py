"""The file system that a driver sees inside its bubblewrap sandbox: only the listed folders.

Only folders are mounted, never single files: if a rename replaced a file, the old one would remain
visible inside. If folders are nested, the innermost one applies, as with allowed paths.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from headgate_ground import packages
from headgate_ground.files import read_file
from headgate_server import places
from queries.domain.checkpoints.ownership import local_path, lock_folder
from queries.domain.probes.questions import TASK, PreflightTask, XrayTask, read_task
from queries.domain.protocol import TMP, DriverSpec
from queries.driver_folder import DriverFolder, current_file
from queries.launchers.process.environment import CLASS_ARCHIVE

#: The system's folders, where present; from /sys the JVM learns its processors and its control
#: group's memory.
_SYSTEM = "/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc /sys /run/systemd/resolve"
#: Variables that specify folders and files.
_NAMED = [
    *("SPARK_HOME", "HADOOP_CONF_DIR", "KUBECONFIG", "KRB5_CONFIG"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
    CLASS_ARCHIVE,
]
#: A possible location of the control plane's own files in /etc (docs/isolation.md), including its
#: TLS key.
_OURS = "/etc/headgate"
#: Files in /etc that only root may read; a worker running as root would expose them.
_ROOTS_OWN = "/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers"
_ROOTS_FOLDERS = "/etc/ssh /etc/ssl/private /etc/sudoers.d"
#: Kernel files that container engines hide (moby: oci/defaults.go); the rest is read-only.
_KERNELS_OWN = (
    *("/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys"),
    *("/proc/latency_stats", "/proc/sched_debug", "/proc/scsi", "/proc/timer_list"),
    *("/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware"),
)


#: Last, because mount points for further folders are created there until then. This includes files
#: of the driver's own processes in /proc: without capabilities, UID 0 can still write what root
#: owns, such as /proc/sys.
_READ_ONLY = ("--remount-ro", "/", "--remount-ro", "/proc")
#: Files and folders in /etc that the loader, distributions' links and their Java need.
_TO_START = "ld.so.cache alternatives java* jvm* crypto-policies localtime"
#: Bytes that a tool can keep in its scratch folder.
_TOOL_SCRATCH = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mounts:
    """The mounts that bubblewrap should make."""

    options: list[str]
    descriptors: tuple[int, ...]  # of folders that it mounts; closed by whatever starts it


class Sees(StrEnum):
    """How a driver sees a folder; if two modes apply to the same folder, the later one wins."""

    NOTHING = "nothing"
    SCRATCH = "scratch"  # writes go to a folder of the driver's own, which is removed with it
    READ = "read"
    WRITE = "write"


def mounts(spec: DriverSpec, folder: DriverFolder, environ: Mapping[str, str]) -> Mounts:
    """Return the mounts that make up the file system that a driver sees.

    Folders to which drivers write are opened here and mounted by their descriptors, because a
    driver could replace a folder with a link. The targets of links are not visible to the driver.
    """
    made, opened = _laid_out(
        _visible(spec, folder, environ), own=str(folder.own), scratch=str(folder.own / TMP)
    )
    made += ["--proc", "/proc", "--dev", "/dev"]
    made += _hide(_KERNELS_OWN)
    if os.geteuid() == 0:
        made += _hide((*_ROOTS_FOLDERS.split(), *_ROOTS_OWN.split()))
    return Mounts([*made, *_READ_ONLY, "--chdir", str(folder.own)], opened)


def tool_mounts(
    reads: Iterable[Path], hidden: Iterable[Path], environ: Mapping[str, str]
) -> list[str]:
    """Return the mounts for one of our programs that read authors' input, but none of their files.

    It sees the program, Python, Java and the folders in `reads`, but of /etc only what starts a
    program, and nothing in `hidden`. Its scratch folder is in memory.
    """
    etc = [str(path) for pattern in _TO_START.split() for path in Path("/etc").glob(pattern)]
    system = [path for path in _SYSTEM.split() if path not in ("/etc", "/sys")]
    visible = [(Sees.READ, path) for path in (*system, *_python(), *_java(environ))]
    visible += [(Sees.NOTHING, str(path)) for path in hidden]
    visible += [*_our_packages(), (Sees.SCRATCH, "/tmp")]
    visible += [(Sees.READ, os.path.realpath(path)) for path in reads]
    visible += [(Sees.READ, str(path)) for path in reads]
    made, _ = _laid_out(visible, own="/tmp", scratch="")
    for path in etc:
        made += ("--ro-bind-try", path, path)
    made += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev"]
    made += _hide(path for path in _KERNELS_OWN if path.startswith("/proc/"))
    return [*made, *_READ_ONLY, "--chdir", "/tmp"]


def _laid_out(
    visible: Iterable[tuple[Sees, str]], *, own: str, scratch: str
) -> tuple[list[str], tuple[int, ...]]:
    """Return the mounts of folders, and the descriptors of those that are opened for them."""
    table: dict[str, Sees] = {}
    opened: list[int] = []
    for kind, path in visible:
        table[path] = max(kind, table.get(path, kind), key=list(Sees).index)
    made: list[str] = []
    shown: dict[str, Sees] = {}
    for path, wanted in sorted(table.items(), key=lambda each: Path(each[0]).parts):
        outer = next((kind for at, kind in reversed(shown.items()) if _is_in(path, at)), None)
        mode = _as_it_is(path, wanted, outer)
        if mode == outer == Sees.WRITE:
            continue
        descriptor: int | None = None
        if mode is Sees.WRITE and path != own:
            descriptor = _open_own(path)
            mode = _absent(outer) if descriptor is None else mode
        if mode is None:
            continue
        if descriptor is not None:
            opened.append(descriptor)
            made += ("--bind-fd", str(descriptor), path)
        else:
            made += _mount(path, mode, scratch)
        shown[path] = mode
    # Last, because mount points for further folders are created there until then.
    for path in (path for path, kind in shown.items() if kind is Sees.NOTHING):
        made += ["--remount-ro", path]
    return made, tuple(opened)


def _open_own(path: str) -> int | None:
    """Open a folder; return None if its path contains a link."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    if os.readlink(f"/proc/self/fd/{descriptor}") == path:
        return descriptor
    os.close(descriptor)
    return None


def _visible(
    spec: DriverSpec, folder: DriverFolder, environ: Mapping[str, str]
) -> Iterator[tuple[Sees, str]]:
    for path in (*_SYSTEM.split(), *_python(), *_java(environ), *_named(environ)):
        yield Sees.READ, path
    yield Sees.NOTHING, _OURS
    yield from _our_packages()
    for kind, named in ((Sees.NOTHING, spec.own_folders), (Sees.WRITE, spec.data_roots)):
        paths = (local_path(location) for location in named)
        yield from ((kind, str(path)) for path in paths if path is not None)
    for root in readable(spec, folder):
        yield Sees.READ, root
    for location in writable(spec, folder):
        yield Sees.WRITE, location
    yield Sees.READ, str(current_file(folder.root.parent).parent)
    yield Sees.READ, str(folder.control)
    yield Sees.WRITE, str(folder.own)
    yield Sees.SCRATCH, "/tmp"


def _our_packages() -> Iterator[tuple[Sees, str]]:
    for at in _with_our_packages():
        yield from ((Sees.NOTHING, f"{at}/{package}") for package in packages.OURS)
        yield from ((Sees.READ, f"{at}/{package}") for package in packages.DRIVER)


def _as_it_is(path: str, kind: Sees, outer: Sees | None) -> Sees | None:
    """Return how to mount a folder inside its surroundings; None if it does not need a mount."""
    if kind is Sees.NOTHING:
        return kind if outer not in (None, kind) and os.path.isdir(path) else None
    if kind is Sees.SCRATCH or os.path.isdir(path):
        return kind
    return _absent(outer) if kind is Sees.WRITE else None


def _absent(outer: Sees | None) -> Sees | None:
    """Return how to mount a writable folder that does not exist on the host.

    Writing to the folder must fail; otherwise the data would be lost with the scratch folder.
    """
    return Sees.NOTHING if outer is Sees.SCRATCH else None


def readable(spec: DriverSpec, folder: DriverFolder) -> list[str]:
    """Return the folders for a driver's code, packages, Spark, jars, and a preflight's old code."""
    task = _task(folder)
    old_code = task.old_code_roots if isinstance(task, PreflightTask) else ()
    jars = (str(Path(jar).parent) for jar in spec.jars)
    others = tuple(filter(None, (spec.packages, spec.spark)))
    return [*spec.code_roots, *old_code, *others, *dict.fromkeys(jars)]


def writable(spec: DriverSpec, folder: DriverFolder) -> list[str]:
    """Return the local folders for a driver's checkpoints, their locks, and a probe's task."""
    folders = list(spec.folders)
    task = _task(folder)
    named: tuple[str, ...] = ()
    if isinstance(task, PreflightTask):
        named = (task.scratch, task.copy, task.sink_copy)
    elif isinstance(task, XrayTask):
        named = (task.checkpoint,)
    folders += [str(path) for location in named if (path := local_path(location)) is not None]
    for location in spec.checkpoints:
        path, lock = local_path(location), lock_folder(location)
        if path is not None and lock is not None:
            folders += [str(path), str(lock)]
    return folders


def _task(folder: DriverFolder) -> object:
    """Return a probe's task; None for a driver, and for a task that the probe will reject."""
    text = read_file(folder.control / TASK)
    try:
        return read_task(text) if text else None
    except (ValueError, KeyError, TypeError):
        return None


def _mount(path: str, kind: Sees, scratch: str) -> Iterable[str]:
    if kind is Sees.NOTHING:
        return ("--tmpfs", path)
    if kind is Sees.SCRATCH:
        in_memory = ("--size", str(_TOOL_SCRATCH), "--tmpfs", path)
        return ("--bind", scratch, path) if scratch else in_memory
    if kind is Sees.READ and Path(path).is_symlink() and path in _SYSTEM.split():
        return ("--symlink", os.readlink(path), path)  # /bin -> usr/bin
    return ("--ro-bind" if kind is Sees.READ else "--bind", path, path)


def _python() -> set[str]:
    """Return this Python's folders: its environment, its base installation, and PySpark's.

    PySpark may be elsewhere, if a .pth file or the environment's creator put it there.
    """
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix}
    if (spark := importlib.util.find_spec("pyspark")) is not None and spark.origin:
        prefixes.add(str(Path(spark.origin).parent.parent))
    return prefixes | {os.path.realpath(prefix) for prefix in prefixes}


def _with_our_packages() -> set[str]:
    """Return the folder of our packages under each path by which a driver refers to it."""
    folders = {str(places.ROOT)}
    for prefix in _python():
        if places.ROOT.is_relative_to(real := os.path.realpath(prefix)):
            folders.add(str(Path(prefix) / places.ROOT.relative_to(real)))
    return folders


def _java(environ: Mapping[str, str]) -> Iterator[str]:
    if home := environ.get("JAVA_HOME"):
        yield from {home, os.path.realpath(home)}
    elif executable := shutil.which("java", path=environ.get("PATH")):
        yield str(Path(os.path.realpath(executable)).parent.parent)


def _named(environ: Mapping[str, str]) -> Iterator[str]:
    for name in _NAMED:
        if path := environ.get(name):
            folder = path if os.path.isdir(path) else str(Path(path).parent)
            if len(Path(folder).parts) > 1:
                yield from {folder, os.path.realpath(folder)}


def _hide(paths: Iterable[str]) -> Iterator[str]:
    """Hide existing folders and files by mounting empty ones over them."""
    for path in paths:
        if os.path.isdir(path):
            yield from ("--perms", "0000", "--tmpfs", path, "--remount-ro", path)
        elif os.path.isfile(path):
            yield from ("--ro-bind", "/dev/null", path)


def _is_in(path: str, folder: str) -> bool:
    return folder in ("/", path) or path.startswith(f"{folder}/")
