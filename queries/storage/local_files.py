"""Read folders on a local disk with the interface of `HadoopStorage`."""

import os
from collections.abc import Iterable
from pathlib import Path

from headgate_ground.files import NotPlain, open_plain
from headgate_ground.tolerant.values import at_s
from queries.domain.definitions.locations import local_path
from queries.storage.hadoop import FileContent, FileEntry, Listing, StorageFailed, TooLarge, inside


class LocalFiles:
    """The files of this host; raises `StorageFailed` with the system's reason."""

    def list(self, location: str, *, deep: bool = False, most: int) -> Listing:
        """Return what is in a folder, without sizes and times; nothing if it is gone.

        With `deep`, return all files below it, with sizes and times; links to folders are not
        followed.
        """
        if deep:
            return _all_files(_path(location), most)
        try:
            with os.scandir(_path(location)) as scan:
                entries: list[FileEntry] = []
                for entry in scan:
                    if len(entries) == most:
                        return Listing(tuple(entries), more=True)
                    entries.append(FileEntry(entry.name, 0, None))
        except (FileNotFoundError, NotADirectoryError):
            return Listing((), more=False)
        except OSError as error:
            raise StorageFailed(f"{location}: {error.strerror}.") from error
        return Listing(tuple(entries), more=False)

    def read(self, location: str, names: Iterable[str], *, most: int) -> dict[str, FileContent]:
        """Return the contents of files of at most `most` bytes, without those that are gone."""
        folder, contents = _path(location), {}
        for name in names:
            try:
                with os.fdopen(open_plain(folder / inside(name), within=folder), "rb") as file:
                    data = file.read(most + 1)
                    modified_at = at_s(os.fstat(file.fileno()).st_mtime)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (NotPlain, OSError) as error:
                raise StorageFailed(f"{location}/{name}: {error.strerror}.") from error
            if len(data) > most:
                raise TooLarge(f"{location}/{name} has more than {most} bytes.")
            contents[name] = FileContent(data, modified_at)
        return contents


def _all_files(folder: Path, most: int) -> Listing:
    entries: list[FileEntry] = []

    def failed(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):  # gone meanwhile
            raise StorageFailed(f"{error.filename}: {error.strerror}.") from error

    for at, _, names in os.walk(folder, onerror=failed):
        for name in names:
            path = Path(at) / name
            try:
                about = path.stat()
            except FileNotFoundError:  # removed, or a link that leads nowhere
                continue
            except OSError as error:
                raise StorageFailed(f"{path}: {error.strerror}.") from error
            if len(entries) == most:
                return Listing(tuple(entries), more=True)
            relative = path.relative_to(folder).as_posix()
            entries.append(FileEntry(relative, about.st_size, at_s(about.st_mtime)))
    return Listing(tuple(entries), more=False)


def _path(location: str) -> Path:
    path = local_path(location)
    if path is None:
        raise StorageFailed(f"{location} is not on this host.")
    return Path(path)
