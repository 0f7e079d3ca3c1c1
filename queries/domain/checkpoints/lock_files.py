"""Where the lock and owner file of a checkpoint are: next to it, never inside it.

Launchers look at them and drivers take them; both must mean the same file.
"""

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

FOLDER = ".headgate"


def local_path(location: str) -> PurePosixPath | None:
    """Return the path of a checkpoint on the local file system, None for any other place."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        return None
    # Only a URI is escaped; a bare path is taken literally.
    path = PurePosixPath(unquote(parts.path) if parts.scheme else location)
    return path if path.is_absolute() else None


def lock_file(location: str) -> PurePosixPath | None:
    """Return `<parent>/.headgate/<name>.lock`, None where the checkpoint is not local."""
    path = local_path(location)
    return None if path is None else path.parent / FOLDER / f"{path.name}.lock"


def owner_file(location: str) -> str:
    """Return `<parent>/.headgate/<name>.owner.json` as a path, or a URI where it is not local."""
    path = local_path(location)
    if path is not None:
        return str(path.parent / FOLDER / f"{path.name}.owner.json")
    parent, _, name = location.rstrip("/").rpartition("/")
    return f"{parent}/{FOLDER}/{name}.owner.json"
