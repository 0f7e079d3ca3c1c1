"""Copy code for drivers: a copy is named after its contents, and no later edit can change it."""

import contextlib
import shutil
import tempfile
from pathlib import Path

from headgate_ground.files import use_folder
from queries.code_roots import LIMIT_BYTES, File, digest_of, files_of
from queries.launchers.base import LaunchRefused


def freeze(roots: tuple[str, ...], code_dir: Path) -> tuple[tuple[str, ...], str]:
    """Copy code roots to `code_dir/<sha256>/<n>` and return the copies and the SHA-256.

    Equal contents give the same copy. Raises `LaunchRefused` if a root cannot be read or if all
    roots together contain more than 50 MB.
    """
    if not roots:
        return (), ""
    try:
        files = list(files_of(roots))
    except NotADirectoryError as error:
        raise LaunchRefused(
            f"The code root {error} is not a folder. Create it or change python_path."
        ) from error
    _check_size(files)
    digest = _digest(files)
    if not use_folder(code_dir / digest):
        digest = _copy(files, len(roots), code_dir)
    return tuple(str(code_dir / digest / str(index)) for index in range(len(roots))), digest


def frozen(count: int, sha256: str, code_dir: Path) -> tuple[str, ...] | None:
    """Return the copies of `count` roots under this SHA-256; None if they are gone."""
    if not count:
        return ()
    copies = [code_dir / sha256 / str(index) for index in range(count)]
    whole = bool(sha256) and all(copy.is_dir() for copy in copies)
    return tuple(map(str, copies)) if whole else None


def _check_size(files: list[File]) -> None:
    total = 0
    for _, root, name in files:
        with contextlib.suppress(FileNotFoundError):  # an editor or a checkout is changing it
            total += (Path(root) / name).stat().st_size
    if total > LIMIT_BYTES:
        roots = ", ".join(sorted({root for _, root, _ in files}))
        raise LaunchRefused(
            f"The code roots {roots} contain {total / 1e6:.0f} MB; drivers run from copies of "
            "at most 50 MB. Move data elsewhere, or use a smaller folder in python_path."
        )


def _digest(files: list[File]) -> str:
    try:
        return digest_of(files)
    except OSError as error:
        raise LaunchRefused(f"A code file cannot be read: {error}") from error


def _copy(files: list[File], count: int, code_dir: Path) -> str:
    """Copy to a draft, then rename, so that a copy is complete or absent. Return its SHA-256.

    It is named after the copied contents, which may differ from `files` if a file was edited in the
    meantime.
    """
    code_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=code_dir))
    try:
        for index in range(count):
            (draft / str(index)).mkdir()
        for index, root, name in files:
            copy = draft / str(index) / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(root) / name, copy)
        digest = _digest([(index, str(draft / str(index)), name) for index, _, name in files])
        try:
            draft.rename(code_dir / digest)
        except OSError:
            # If another worker was faster, its copy has the same name and therefore the same
            # contents.
            if not (code_dir / digest).is_dir():
                raise
        return digest
    except OSError as error:
        raise LaunchRefused(f"The code cannot be copied to {code_dir}: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
