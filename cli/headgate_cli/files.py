"""Manifests as files, an environment's values, the commit, and the code that is packed next to
them.

In an application's manifest, `code: {upload: ./code}` specifies a folder relative to the file. It
is sent to the server, and the returned digest replaces the path in the applied manifest.
"""

import gzip
import io
import subprocess
import sys
import tarfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from headgate_cli.output import CommandEnded, ExitCode, note, refused
from headgate_cli.server import Json, Server

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

    Paths in stdin are relative to the current folder. Folders are read recursively, except hidden
    ones and links to folders. Raises `CommandEnded` for a path that does not exist or contains
    nothing.
    """
    paths: dict[Path, None] = {}
    texts = [File("stdin", stdin_text(), Path.cwd())] if STDIN in names else []
    for name in names:
        if name != STDIN:
            paths |= dict.fromkeys(_below(Path(name)))
    top = Path(next(iter(paths))).resolve().parent if paths else None
    checkout = _checkout(top) if top else None
    files = [_file(path, checkout) for path in paths]
    return Set([*texts, *files], checkout)


def stdin_text() -> str:
    """Return the text on stdin; raise `CommandEnded` if it is not UTF-8."""
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
    """Return a set's owner: the given one, otherwise its repository name.

    Raises `CommandEnded` if there is no owner and no repository.
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


#: Folders that Python and git create themselves.
LEFT_OUT = frozenset({"__pycache__", ".git"})
_DIGEST = "sha256:"


def upload_code(server: Server, files: list[File]) -> None:
    """Upload the folders that manifests refer to, each once, and insert their digests."""
    digests: dict[Path, str] = {}

    def digest(folder: Path) -> str:
        if folder not in digests:
            response = sent(server, packed(folder))
            note(f"{folder}: {about(response)}, {response['digest']}")
            digests[folder] = str(response["digest"])
        return digests[folder]

    for file in files:
        file.text = with_digests(file, digest)


def with_digests(file: File, digest: Callable[[Path], str]) -> str:
    """Return a file's text with each code folder replaced by its digest.

    Text without such folders is returned unchanged, and so is invalid YAML: the server reports its
    errors.
    """
    if "upload" not in file.text:
        return file.text
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096  # keep long text on its line
    try:
        documents = list(yaml.load_all(file.text))
    except (YAMLError, ValueError):
        return file.text
    changed = False
    for manifest in (
        loaded
        for document in documents
        for loaded in (document if isinstance(document, list) else [document])
    ):
        code = _code(manifest)
        folder = code.get("upload") if code else None
        if code and isinstance(folder, str) and not folder.startswith(_DIGEST):
            code["upload"] = digest(_beside(file, folder))
            changed = True
    if not changed:
        return file.text
    target = io.StringIO()
    yaml.dump_all(documents, target)
    return target.getvalue()


def _code(document: Any) -> Any:
    """Return `spec.code` in an application's manifest; None if there is none."""
    if not isinstance(document, dict) or document.get("kind") != "Application":
        return None
    spec = document.get("spec")
    code = spec.get("code") if isinstance(spec, dict) else None
    return code if isinstance(code, dict) else None


def _beside(file: File, folder: str) -> Path:
    path = (file.folder / folder).resolve()
    if not path.is_dir():
        raise refused(
            f"{file.path}: the code folder {folder} does not exist.",
            "Use a folder relative to the file, or the digest of uploaded code.",
        )
    return path


def packed(folder: Path) -> bytes:
    """Return a folder as a gzipped tar: the same bytes for the same names and contents.

    Raises `CommandEnded` for a link, which could lead out of the folder.
    """
    return _tar(_files_of(folder))


#: Extensions of files that are sent unchanged; the server unpacks them.
_FILES = {".py": "text/x-python", ".zip": "application/zip", ".whl": "application/zip"}


def sent_file(server: Server, path: Path) -> Json:
    """Upload one module, a zip or a wheel; return the server's response.

    Raises `CommandEnded` for any other file.
    """
    kind = _FILES.get(path.suffix)
    if kind is None:
        raise refused(f"{path} cannot be uploaded.", "Use a folder or a .py, .zip or .whl file.")
    parameters = {"name": path.name} if path.suffix == ".py" else {}
    response: Json = server.upload("code", content=path.read_bytes(), kind=kind, **parameters)
    return response


def sent(server: Server, content: bytes) -> Json:
    """Upload packed code; return the server's response."""
    response: Json = server.upload("code", content=content, kind="application/gzip")
    return response


def about(response: Json) -> str:
    """Return how much was uploaded."""
    files = "1 file" if response["files"] == 1 else f"{response['files']} files"
    return f"{files}, {response['bytes']} bytes"


def _is_left_out(name: str) -> bool:
    return bool(LEFT_OUT & set(name.split("/"))) or name.endswith(".pyc")


def _files_of(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).as_posix()
        if _is_left_out(inside):
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise refused(
                f"{path} is a link or not a regular file.", "Replace it with a copy of the file."
            )
        if path.is_file():
            yield inside, path.read_bytes()


def _tar(files: Iterable[tuple[str, bytes]]) -> bytes:
    target = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=target, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue()
