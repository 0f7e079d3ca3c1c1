"""Files that a driver's pod fetches instead of reading them on its host, by their SHA-256.

Folders become tar files, which are kept in a folder of this host and named by their contents; jars
are served from where they are. The web process serves only files that a driver's launch named.
"""

import hashlib
import json
import os
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from headgate_ground import packages
from headgate_ground.files import replace_file
from headgate_server import places
from queries.code_roots import files_of
from queries.domain.protocol import DriverSpec
from queries.launchers.pods.layout import ARCHIVES, FETCHED, Archive

#: Our packages that the agent, the shim and a driver import.
_PACKAGES = tuple(dict.fromkeys((*packages.DRIVER, "controlplane", "headgate_server")))
#: Where a pod has them; the first part of its PYTHONPATH.
CODE = "code"
#: Days for which a tar file is kept after the last launch that used it.
_KEPT_S = 7 * 24 * 3600


def release_code(folder: Path) -> Archive:
    """Return our own code as an archive, made once by this process unless it was deleted."""
    archive = _of_release(folder)
    try:
        os.utime(_tar(folder, archive.sha256))  # `prune` looks at it
    except FileNotFoundError:
        _of_release.cache_clear()
        return _of_release(folder)
    return archive


@lru_cache(maxsize=4)
def _of_release(folder: Path) -> Archive:
    roots = tuple(str(places.ROOT / name) for name in _PACKAGES)
    files = [
        (Path(root) / name, f"{Path(root).name}/{name}")
        for _, root, name in files_of(roots)
        if Path(name).suffix in (".py", ".json", ".java", ".conf")
    ]
    return Archive(_packed(folder, files), CODE, unpack=True)


def fetched(spec: DriverSpec, folder: Path) -> tuple[DriverSpec, dict[Archive, str]]:
    """Return the spec with a pod's paths, and the archives for them with their files on this host.

    Raises OSError if a file cannot be read or a tar file cannot be written.
    """
    ours = release_code(folder)
    files = {ours: str(_tar(folder, ours.sha256))}

    def tar(source: str, target: str) -> str:
        archive = Archive(_packed(folder, _folder(source)), target, unpack=True)
        files[archive] = str(_tar(folder, archive.sha256))
        return str(archive.path)

    def jar(source: str) -> str:
        archive = Archive(_sha256(source), f"jars/{Path(source).name}", unpack=False)
        files[archive] = source
        return str(archive.path)

    code = tuple(tar(root, f"roots/{number}") for number, root in enumerate(spec.code_roots))
    packed = tar(spec.packages, "packages") if spec.packages else ""
    in_pod = replace(spec, code_roots=code, packages=packed, jars=tuple(map(jar, spec.jars)))
    return in_pod, files


def note(control: Path, files: dict[Archive, str]) -> None:
    """Write which files the web process may serve to a driver's pod."""
    served = {archive.sha256: path for archive, path in files.items()}
    replace_file(control / ARCHIVES, json.dumps(served))


def prune(folder: Path, *, now: float) -> None:
    """Delete tar files that no launch has used for a week, and what a crash has left."""
    for path in folder.glob("*"):
        with suppress(OSError):
            if now - path.stat().st_mtime > _KEPT_S:
                path.unlink()


def path_in_pod() -> str:
    """Return the PYTHONPATH of the agent."""
    return str(FETCHED / CODE)


def _folder(source: str) -> Iterable[tuple[Path, str]]:
    root = Path(source)
    for folder, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_file() and path.suffix != ".pyc":
                yield path, str(path.relative_to(root))


def _packed(folder: Path, files: Iterable[tuple[Path, str]]) -> str:
    """Write a tar file of these files, named by its SHA-256, and return that."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=folder, prefix=".draft-")
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            tarfile.open(
                fileobj=file, mode="w", format=tarfile.GNU_FORMAT, dereference=True
            ) as tar,
        ):
            for path, name in sorted(files, key=lambda file: file[1]):
                tar.add(path, name, recursive=False, filter=_plain)
        sha256 = _digest(Path(draft))
        target = _tar(folder, sha256)
        os.replace(draft, target)
        os.utime(target, (time.time(), time.time()))  # `prune` looks at it
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft)
    return sha256


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without what differs between equal files: owners and times."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    member.mode = 0o755 if member.mode & 0o100 else 0o644
    return member


def _tar(folder: Path, sha256: str) -> Path:
    return folder / f"{sha256}.tar"


def _sha256(path: str) -> str:
    status = os.stat(path)
    return _remembered(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1000)
def _remembered(path: str, size: int, changed_ns: int) -> str:
    """Return the digest of a file, computed once for each size and time of change."""
    return _digest(Path(path))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def listed(files: Iterable[Archive]) -> Iterator[Archive]:
    """Yield the archives in a fixed order, so that equal launches have equal plans."""
    yield from sorted(files, key=lambda archive: archive.target)
