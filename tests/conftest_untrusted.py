"""No test may show the worker or a shim touching by its path what a driver can write.

An audit hook (`sys.addaudithook`) sees every opening, listing, renaming, removal and change of a
file by its path. What is named relative to an open folder is what `headgate_ground.files` and
`headgate_ground.untrusted` do, and passes.

The hook does not see stat(2), access(2) and readlink(2). These look at such a path without opening
it, and what they return decides only which sentence is shown, or whether something is opened as
docs/guarantees.md says:

- `mounts._as_it_is`, `mounts._hide`: whether a folder to mount exists; the mount itself is of an
  open descriptor, whose path is compared
- `FileSink.keep_log`, `FileSink.put_back`: whether the log exists, and has been put aside
- `operators._metadata`, `xray`: whether an operator has metadata, and whether there is any state
- `switching`, `remote.copy_beside`: whether a checkpoint or a copy is there
- `FileSink.at`, `local_roots.follow`: where a path leads, before it is compared with the allowed
  paths
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: Below a driver's own folder, a checkpoint's or a sink's logs, or the folder of locks.
_WRITABLE = re.compile(
    r"/\d+/own/.|/(offsets|commits|sources|state)/.|/(_spark_metadata|_headgate|\.headgate)(/|$)"
)
#: Copies of ours that look like a checkpoint, in folders that no driver sees.
_OURS = re.compile(r"/(mirrors?|mirrors_dir|stage-[0-9a-f]+(-copy)?|[^/]*\.building-[^/]*)(/|$)")
#: What runs in a driver, with its rights; and the tests, which lay out what drivers could.
_NOT_WORKERS = (*("tests/", "benchmarks/", "examples/", "listeners/spark/", "queries/runtime/"),)
#: What both use: whoever called it is judged.
_SHARED = ("headgate_ground/", "queries/driver_folder.py")
_EVENTS = {
    *("open", "os.listdir", "os.scandir", "os.walk", "os.chdir", "os.chmod", "os.chown", "os.link"),
    *("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate", "os.utime"),
    *("os.getxattr", "os.setxattr", "os.removexattr", "os.listxattr", "glob.glob"),
    *("pathlib.Path.glob", "pathlib.Path.rglob", "shutil.rmtree", "shutil.copyfile"),
    *("shutil.copymode", "shutil.copystat", "shutil.copytree", "shutil.move", "shutil.chown"),
    *("sqlite3.connect", "socket.connect", "socket.bind", "tempfile.mkdtemp", "tempfile.mkstemp"),
}
_found: list[str] = []


def install() -> None:
    """Add the hook to this process, for good."""
    sys.addaudithook(_hear)


def check() -> Iterator[None]:
    """Fail the test that runs while this is suspended, if it shows such a call."""
    _found.clear()
    yield
    if _found:
        told = "\n".join(dict.fromkeys(_found))
        _found.clear()
        pytest.fail(f"What a driver can write was touched by its path:\n{told}", pytrace=False)


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in _EVENTS:
        return
    for argument in arguments:
        path = _path(argument)
        if path and _WRITABLE.search(path) and not _OURS.search(path):
            if caller := _worker(sys._getframe(1)):
                _found.append(f"{event} of {path} at {caller}")
            return


def _path(argument: Any) -> str:
    if isinstance(argument, os.PathLike):
        argument = argument.__fspath__()
    if isinstance(argument, bytes):
        argument = os.fsdecode(argument)
    return argument if isinstance(argument, str) and argument.startswith("/") else ""


def _worker(frame: FrameType | None) -> str:
    """Return which line of the worker's or a shim's code is calling; "" if it is another's."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(f"{ROOT}/") and "/.venv/" not in file:
            name = file.removeprefix(f"{ROOT}/")
            if name.startswith(_NOT_WORKERS):
                return ""
            if not name.startswith(_SHARED):
                return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
