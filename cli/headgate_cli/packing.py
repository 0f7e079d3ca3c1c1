"""Code beside a manifest: a folder that is packed, uploaded, and named by its digest.

In an application's manifest `code: {upload: ./code}` names a folder relative to the file. It is
sent to the server, and the digest that comes back takes its place in what is applied.
"""

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headgate_cli.ends import refused
from headgate_cli.files import File
from headgate_cli.output import note
from headgate_cli.server import Json, Server

#: Left out: what Python and git make by themselves.
LEFT_OUT = frozenset({"__pycache__", ".git"})
_DIGEST = "sha256:"


def upload_code(server: Server, files: list[File]) -> None:
    """Upload the folders that manifests name, each once, and put their digests in place."""
    digests: dict[Path, str] = {}

    def digest(folder: Path) -> str:
        if folder not in digests:
            found: Json = server.upload("code", content=packed(folder), kind="application/gzip")
            files = "1 file" if found["files"] == 1 else f"{found['files']} files"
            note(f"{folder}: {files}, {found['bytes']} bytes, {found['digest']}")
            digests[folder] = str(found["digest"])
        return digests[folder]

    for file in files:
        file.text = with_digests(file, digest)


def with_digests(file: File, digest: Callable[[Path], str]) -> str:
    """Return a file's text with the digest of each folder that it names as code.

    A text that names none comes back as it is, and so does one that is no YAML: the server says
    what is wrong with it.
    """
    if "upload" not in file.text:
        return file.text
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096  # a long text stays on its line
    try:
        documents = list(yaml.load_all(file.text))
    except (YAMLError, ValueError):
        return file.text
    changed = False
    for document in documents:
        code = _code(document)
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
    """Return `spec.code` of an application's manifest, None where there is none."""
    if not isinstance(document, dict) or document.get("kind") != "Application":
        return None
    spec = document.get("spec")
    code = spec.get("code") if isinstance(spec, dict) else None
    return code if isinstance(code, dict) else None


def _beside(file: File, folder: str) -> Path:
    path = (file.folder / folder).resolve()
    if not path.is_dir():
        raise refused(
            f"{file.path}: {folder}, the folder of the code, is not there.",
            "Name a folder relative to the file, or the digest of what is uploaded.",
        )
    return path


def packed(folder: Path) -> bytes:
    """Return a folder as a tar by gzip: the same bytes for the same names and contents.

    Raises `Ended` for a link, which could lead out of the folder.
    """
    target = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=target, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if LEFT_OUT & set(inside.parts) or path.suffix == ".pyc":
                continue
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise refused(f"{path} is a link, or no file.", "Put a copy of the file there.")
            if path.is_file():
                member = tarfile.TarInfo(inside.as_posix())
                content = path.read_bytes()
                member.size, member.mode = len(content), 0o644
                archive.addfile(member, io.BytesIO(content))
    return target.getvalue()
