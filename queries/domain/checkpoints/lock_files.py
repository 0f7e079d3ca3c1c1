"""The paths of a checkpoint's lock and owner files: next to it, never inside it.

Launchers check these files and drivers lock them, so both must use the same paths. They are stored
in a separate folder, so that a driver can be given access only to the files of its own checkpoints.
"""

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

FOLDER = ".headgate"
LOCK, OWNER = "lock", "owner.json"


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
    parent, _, name = location.rstrip("/").rpartition("/")
    return f"{parent}/{FOLDER}/{name}.{OWNER}"
