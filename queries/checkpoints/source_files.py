"""List the files that a file source would find now, in the same way as Spark.

Files and folders whose names begin with "_" or "." are skipped; a path can contain wildcards, and
folders are searched recursively.
"""

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from queries.checkpoints.snapshot import CannotCopy
from queries.domain.definitions.locations import local_path

#: The alternatives if a source cannot start elsewhere.
ELSEWHERE = "Reset to earliest, or rewind to a batch."
#: Maximum number of files listed at once.
AT_MOST = 200_000
#: Characters that Java's URI leaves unescaped in a path, in addition to letters and digits.
_LEGAL = "/;:@&=+$,_-!.~'()*"


def files_of_source(path: str) -> list[tuple[str, int]]:
    """Return (URI, modified in ms) for each file under a source's path, oldest first.

    Raises `CannotCopy` if the path is not on a local file system or contains too many files.
    """
    pattern = local(path)
    if pattern is None:
        raise CannotCopy(
            f"{path} is not on a local file system, so its files cannot be listed.",
            way_out=ELSEWHERE,
        )
    files: list[tuple[str, int]] = []
    for root in glob.glob(pattern):
        for file in _files(Path(root)):
            try:
                modified = file.stat().st_mtime_ns // 1_000_000
            except FileNotFoundError:
                continue
            files.append((f"file://{_escaped(str(file))}", modified))
            if len(files) > AT_MOST:
                raise CannotCopy(f"{path} contains more than {AT_MOST} files.")
    return sorted(files, key=lambda file_and_time: (file_and_time[1], file_and_time[0]))


def exists(uri: str) -> bool | None:
    """Return whether a file that a source has read still exists; None if the file is not local."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return None
    return os.path.exists(unquote(parts.path))


def local(path: str) -> str | None:
    """Return a source's path on the local file system, with its wildcards; None if not local."""
    if path.startswith("/"):
        return path
    if path.startswith("file:"):
        rest = path.removeprefix("file:")
        return "/" + rest.lstrip("/")
    return local_path(path)


def _escaped(path: str) -> str:
    """Return a path as Java's URI writes it, because Spark recognizes files by this exact text.

    Source: java.net.URI, "path" and "other" characters.
    """
    return "".join(
        letter if not letter.isascii() and letter.isprintable() else quote(letter, safe=_LEGAL)
        for letter in path
    )


def _files(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        for name in names:
            if not name.startswith(("_", ".")):
                yield Path(folder) / name
