"""Where the lock and owner file of a checkpoint are: next to it, never inside it.

Launchers look at them and drivers take them; both must mean the same file. They stand in a folder
of their own, so that a driver can be given those of its checkpoints and no others.
"""

from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

FOLDER = ".headgate"
LOCK, OWNER = "lock", "owner.json"


def local_path(location: str) -> PurePosixPath | None:
    """Return the path of a checkpoint on the local file system, None for any other place."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        return None
    # Only a URI is escaped; a bare path is taken literally.
    path = PurePosixPath(unquote(parts.path) if parts.scheme else location)
    return path if path.is_absolute() else None


def lock_folder(location: str) -> PurePosixPath | None:
    """Return `<parent>/.headgate/<name>.held`, None where the checkpoint is not local."""
    path = local_path(location)
    return None if path is None else path.parent / FOLDER / f"{path.name}.held"


def lock_file(location: str) -> PurePosixPath | None:
    """Return the file that the drivers of a checkpoint lock, None where it is not local."""
    folder = lock_folder(location)
    return None if folder is None else folder / LOCK


def earlier_lock_file(location: str) -> PurePosixPath | None:
    """Return the file that drivers of an earlier release locked; such a driver may still live."""
    path = local_path(location)
    return None if path is None else path.parent / FOLDER / f"{path.name}.lock"


def lock_files(location: str) -> tuple[PurePosixPath, ...]:
    """Return every file by whose lock a checkpoint may be held."""
    both = (lock_file(location), earlier_lock_file(location))
    return tuple(path for path in both if path is not None)


def owner_file(location: str) -> str:
    """Return the file that names a checkpoint's owner: a path, or a URI where it is not local."""
    folder = lock_folder(location)
    return earlier_owner_file(location) if folder is None else str(folder / OWNER)


def earlier_owner_file(location: str) -> str:
    """Return where that file stands when an earlier release wrote it; remotely it still does."""
    path = local_path(location)
    if path is not None:
        return str(path.parent / FOLDER / f"{path.name}.owner.json")
    parent, _, name = location.rstrip("/").rpartition("/")
    return f"{parent}/{FOLDER}/{name}.owner.json"
