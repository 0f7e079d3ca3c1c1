"""Manifests as files: which files, an environment's values, and the commit."""

import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from headgate_cli.ends import CommandEnded, ExitCode, refused
from headgate_cli.output import note
from headgate_cli.server import Json

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
#: Time limit for one git command on a checkout.
GIT_LIMIT_S = 30


@dataclass(slots=True)
class File:
    """One file of manifests."""

    path: str  # as sent to the server: relative to the repository, otherwise as given
    text: str
    folder: Path  # base for relative paths in the file


@dataclass(frozen=True, slots=True)
class Checkout:
    """The git checkout that files belong to."""

    top: Path
    repository: str = ""  # URL of its remote without user and password; "": it has no remote
    commit: str = ""  # "": no commit yet
    edited: bool = False  # what is applied has not been committed


@dataclass(frozen=True, slots=True)
class Set:
    """Files that are applied together."""

    files: list[File]
    checkout: Checkout | None

    def source(self) -> Json:
        """Return the set's source in the API's form."""
        if self.checkout is None:
            return {}
        return {"repository": self.checkout.repository, "commit": self.checkout.commit}


def read(names: Collection[str]) -> Set:
    """Return the manifests in files and folders, sorted by path, and those on stdin.

    What stdin refers to is below the current folder. Folders are read recursively, except hidden
    ones and links to folders. Raises `Ended` for a path that does not exist or contains nothing.
    """
    paths: dict[Path, None] = {}
    texts = [File("stdin", _stdin(), Path.cwd())] if STDIN in names else []
    for name in names:
        if name != STDIN:
            paths |= dict.fromkeys(_below(Path(name)))
    top = Path(next(iter(paths))).resolve().parent if paths else None
    checkout = _checkout(top) if top else None
    files = [_file(path, checkout) for path in paths]
    return Set([*texts, *files], checkout)


def _stdin() -> str:
    try:
        return sys.stdin.buffer.read().decode() if sys.stdin is not None else ""
    except UnicodeDecodeError:
        raise refused("stdin is not valid UTF-8.") from None


def _below(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise refused(f"{path} does not exist.")
    paths = sorted(
        file
        for file in path.rglob("*")
        if file.suffix.lower() in SUFFIXES
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not paths:
        raise refused(
            f"{path} contains no manifests.", f"Manifest file names end in {', '.join(SUFFIXES)}."
        )
    return paths


def _file(path: Path, checkout: Checkout | None) -> File:
    whole = path.resolve()
    inside = checkout is not None and whole.is_relative_to(checkout.top)
    shown = whole.relative_to(checkout.top) if checkout and inside else path
    try:
        return File(shown.as_posix(), path.read_text(encoding="utf-8"), whole.parent)
    except UnicodeDecodeError:
        raise refused(f"{path} is not valid UTF-8.") from None
    except OSError as error:
        raise refused(f"{path} cannot be read: {error.strerror}.") from None


@dataclass(slots=True)
class Values:
    """An environment's values."""

    by_name: Json = field(default_factory=dict)

    def take_file(self, name: str) -> None:
        """Add the values from a YAML or JSON file; a later file wins."""
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            loaded: Any = YAML(typ="safe", pure=True).load(Path(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise refused(f"{name} cannot be read: {error.strerror}.") from None
        except (YAMLError, ValueError) as error:
            raise refused(f"{name} is not valid YAML: {' '.join(str(error).split())}") from None
        if loaded is not None and not isinstance(loaded, Mapping):
            raise refused(
                f"{name} contains no values.", "Put each value on its own line: NAME: value."
            )
        self.by_name |= dict(loaded or {})

    def take(self, text: str) -> None:
        """Add NAME=VALUE."""
        name, equals, value = text.partition("=")
        if not equals:
            raise CommandEnded(
                ExitCode.USAGE, f"{text} is not a valid value.", "Use --set NAME=VALUE."
            )
        self.by_name[name] = value


def owner_of(option: str, files: Set) -> str:
    """Return a set's owner: the given one, otherwise the name of its repository.

    Raises `Ended` if there is no owner and no repository.
    """
    repository = files.checkout.repository if files.checkout else ""
    name = repository.rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")
    if not (option or name):
        way_out = (
            "Set it with --owner NAME or HEADGATE_OWNER. It is stored with the applied objects."
        )
        raise refused(
            "The files are not in a git repository with a remote, and no owner is set.", way_out
        )
    return option or name


def warn_of_edits(files: Set) -> None:
    """Warn that the reported commit does not contain the applied files."""
    if files.checkout is not None and files.checkout.edited:
        note(f"Note: {files.checkout.top} has uncommitted changes.")


# --- git ------------------------------------------------------------------------------


def _checkout(folder: Path) -> Checkout | None:
    top = _git(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    remote = _git(folder, "remote", "get-url", "origin") or ""
    commit = _git(folder, "rev-parse", "--verify", "HEAD") or ""
    edited = bool(_git(folder, "status", "--porcelain", "--", "."))
    return Checkout(Path(top).resolve(), without_password(remote), commit, edited)


def _git(folder: Path, *arguments: str) -> str | None:
    """Return git's output; None if git is missing, does not respond, or finds no checkout."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=GIT_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode and "dubious ownership" in done.stderr:
        note(f"Note: no commit is recorded because git does not trust {folder} (safe.directory).")
    return done.stdout.strip() if done.returncode == 0 else None


def without_password(address: str) -> str:
    """Return a remote's URL without the user and password that CI adds to it."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return address
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
