"""Code next to a manifest: a folder that is packed, uploaded, and replaced by its digest.

In an application's manifest, `code: {upload: ./code}` specifies a folder relative to the file. It
is sent to the server, and the returned digest replaces the path in the applied manifest.
"""

import gzip
import io
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from headgate_cli.ends import refused
from headgate_cli.files import File
from headgate_cli.output import note
from headgate_cli.server import Json, Server

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

    Text without such folders is returned unchanged, and so is invalid YAML: the server reports what
    is wrong with it.
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

    Raises `Ended` for a link, which could lead out of the folder.
    """
    return _tar(_files_of(folder))


#: Extensions of files that are sent unchanged; the server unpacks them.
_FILES = {".py": "text/x-python", ".zip": "application/zip", ".whl": "application/zip"}


def sent_file(server: Server, path: Path) -> Json:
    """Upload one module, a zip or a wheel; return the server's response.

    Raises `Ended` for any other file.
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
