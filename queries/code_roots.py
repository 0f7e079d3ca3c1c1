"""Read an application's code roots on disk: their files, and a digest of their contents.

Code stored by Headgate itself, uploads and git commits, is in `code/<sha256>/0`: a root like any
other, at the same location as the copy from which a driver that uses only this code runs.

The launcher stores copies of roots under this digest; the pages compare it with the digest of a
driver's code, to show whether the code on disk has changed since. A check costs one `stat` per
file: contents are read again only if size or times differ.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

LIMIT_BYTES = 50 * 1024 * 1024  # all roots of an application together
#: Most files that a page examines; beyond that it shows nothing about the code.
FILES_AT_MOST = 5_000
LOOK_EVERY_S = 2.0
_REMEMBERED_ROOTS = 1_000

LEFT_OUT = frozenset(
    {
        "__pycache__",
        ".git",
        ".hg",
        ".venv",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        "node_modules",
        "var",
    }
)

#: A file of a root: the root's index, the root, the path within it.
File = tuple[int, str, str]


def files_of(roots: tuple[str, ...]) -> Iterator[File]:
    """Yield the roots' regular files in a fixed order; raise `NotADirectoryError` with the root."""
    for index, root in enumerate(roots):
        if not Path(root).is_dir():
            raise NotADirectoryError(root)
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if name not in LEFT_OUT)
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not name.endswith(".pyc") and os.path.isfile(path):
                    yield index, root, os.path.relpath(path, root)


def stored_root(code_dir: Path, sha256: str) -> Path:
    """Return the root of an upload or a git commit."""
    return code_dir / sha256 / "0"


def is_left_out(name: str) -> bool:
    """Return whether a path below a root is not code: caches, version control…"""
    *folders, file = name.split("/")
    return file.endswith(".pyc") or not LEFT_OUT.isdisjoint(folders)


def read_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest_of(files: list[File], read: Callable[[Path], str] = read_digest) -> str:
    """Return the digest of the files' names and contents; raise `OSError` if one is unreadable."""
    whole = hashlib.sha256()
    for index, root, name in files:
        whole.update(f"{index}\0{name}\0{read(Path(root) / name)}\n".encode())
    return whole.hexdigest()


def has_module(roots: tuple[str, ...], name: str) -> bool:
    """Return whether one of the roots currently has a module with this dotted name."""
    path = Path(*name.split("."))
    return any(
        (Path(root) / path).is_dir() or (Path(root) / path).with_suffix(".py").is_file()
        for root in roots
    )


_looks: dict[tuple[str, ...], tuple[float, str | None]] = {}  # roots -> when, what
_lock = threading.Lock()


def digest_on_disk(roots: tuple[str, ...]) -> str | None:
    """Return the digest of the roots' current contents; None if it is too expensive to compute.

    The result is at most `LOOK_EVERY_S` old, because a page requests it once for each query of an
    application.
    """
    with _lock:
        at, digest = _looks.get(roots, (-LOOK_EVERY_S, None))
    if time.monotonic() - at < LOOK_EVERY_S:
        return digest
    digest = _look(roots)
    with _lock:
        if len(_looks) >= _REMEMBERED_ROOTS:
            _looks.clear()
        _looks[roots] = (time.monotonic(), digest)
    return digest


def _look(roots: tuple[str, ...]) -> str | None:
    files: list[File] = []
    total = 0
    try:
        for file in files_of(roots):
            files.append(file)
            total += (Path(file[1]) / file[2]).stat().st_size
            if len(files) > FILES_AT_MOST or total > LIMIT_BYTES:
                return None
        return digest_of(files, _remembered)
    except OSError:
        return None  # a root that is missing, or a checkout in progress


def _remembered(path: Path) -> str:
    at = path.stat()
    return _digest_of_state(path, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)


@lru_cache(maxsize=50_000)
def _digest_of_state(path: Path, *_: int) -> str:
    """Return the digest of a file's content, read once per size, inode and times."""
    return read_digest(path)
