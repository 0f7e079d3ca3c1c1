"""Manifests as files: which ones, the values of an environment, and the commit that they are of."""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from headgate_cli.ends import Code, Ended, refused
from headgate_cli.output import note
from headgate_cli.server import Json

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
#: How long git may take for one answer about a checkout.
GIT_LIMIT_S = 30


@dataclass(slots=True)
class File:
    """One file of manifests."""

    path: str  # as the server is told it: below the repository, else as it was given
    text: str
    folder: Path  # in which relative paths of the file begin


@dataclass(frozen=True, slots=True)
class Checkout:
    """The git checkout that files belong to."""

    top: Path
    repository: str = ""  # address of its remote without user and password; "": it has none
    commit: str = ""  # "": no commit yet
    edited: bool = False  # what is applied is in no commit


@dataclass(frozen=True, slots=True)
class Set:
    """Files that are applied together."""

    files: list[File]
    checkout: Checkout | None

    def source(self) -> Json:
        """Return where the set comes from, as the API takes it."""
        if self.checkout is None:
            return {}
        return {"repository": self.checkout.repository, "commit": self.checkout.commit}


def read(names: Iterable[str]) -> Set:
    """Return the manifests of files and folders, in the order of their paths.

    Folders are read whole, except hidden ones and links to folders. Raises `Ended` for one that
    is not there or holds nothing.
    """
    found: dict[Path, None] = {}
    texts = [File("stdin", sys.stdin.read(), Path.cwd()) for name in names if name == STDIN][:1]
    for name in names:
        if name != STDIN:
            found |= dict.fromkeys(_below(Path(name)))
    top = Path(next(iter(found))).resolve().parent if found else None
    checkout = _checkout(top) if top else None
    files = [_file(path, checkout) for path in found]
    return Set([*texts, *files], checkout)


def _below(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise refused(f"{path} is not there.")
    found = sorted(
        one
        for one in path.rglob("*")
        if one.suffix.lower() in SUFFIXES
        and one.is_file()
        and not any(part.startswith(".") for part in one.relative_to(path).parts)
    )
    if not found:
        raise refused(f"{path} holds no manifest.", f"Manifests end with {', '.join(SUFFIXES)}.")
    return found


def _file(path: Path, checkout: Checkout | None) -> File:
    whole = path.resolve()
    inside = checkout is not None and whole.is_relative_to(checkout.top)
    shown = whole.relative_to(checkout.top) if checkout and inside else path
    try:
        return File(shown.as_posix(), path.read_text(encoding="utf-8"), whole.parent)
    except UnicodeDecodeError:
        raise refused(f"{path} is not text in UTF-8.") from None
    except OSError as error:
        raise refused(f"{path} cannot be read: {error.strerror}.") from None


@dataclass(slots=True)
class Values:
    """The values of an environment."""

    held: Json = field(default_factory=dict)

    def take_file(self, name: str) -> None:
        """Add the values of a YAML or JSON file; a later file wins."""
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            found: Any = YAML(typ="safe", pure=True).load(Path(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise refused(f"{name} cannot be read: {error.strerror}.") from None
        except (YAMLError, ValueError) as error:
            raise refused(f"{name} is not YAML: {' '.join(str(error).split())}") from None
        if found is not None and not isinstance(found, Mapping):
            raise refused(f"{name} holds no values.", "Write one on each line: NAME: value.")
        self.held |= dict(found or {})

    def take(self, text: str) -> None:
        """Add NAME=VALUE."""
        name, equals, value = text.partition("=")
        if not equals:
            raise Ended(Code.USAGE, f"{text} is no value.", "Write --set NAME=VALUE.")
        self.held[name] = value


def owner_of(asked: str, files: Set) -> str:
    """Return the owner of a set: as asked, else the name of its repository.

    Raises `Ended` where neither says.
    """
    repository = files.checkout.repository if files.checkout else ""
    name = repository.rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")
    if not (asked or name):
        way_out = "Name it: --owner NAME, or HEADGATE_OWNER. It is kept with what is applied."
        raise refused(
            "The files are in no git repository with a remote, and no owner is named.", way_out
        )
    return asked or name


def warn_of_edits(files: Set) -> None:
    """Say that the commit that is named does not hold what is applied."""
    if files.checkout is not None and files.checkout.edited:
        note(f"Note: {files.checkout.top} has changes that are in no commit.")


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
    """Return what git says; None where there is no git, no checkout, or no answer."""
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
        note(f"Note: no commit is named, for git does not trust {folder} (safe.directory).")
    return done.stdout.strip() if done.returncode == 0 else None


def without_password(address: str) -> str:
    """Return a remote's address without the user and password that CI puts into it."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or "@" not in parts.netloc:
        return address
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
