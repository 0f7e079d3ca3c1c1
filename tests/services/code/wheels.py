"""Wheels made here, so that installing needs no index."""

import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes],
    needs: Iterable[str] = (),
) -> Path:
    """Write a wheel of pure Python into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in needs]
    all_files = {
        **files,
        f"{info}/METADATA": "\n".join(lines) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in all_files) + f"{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in all_files.items():
            archive.writestr(file, text)
        archive.writestr(f"{info}/RECORD", record)
    return path


def source_distribution(folder: Path, name: str, version: str, setup: str) -> Path:
    """Write a package that would have to be built."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    with tarfile.open(path, "w:gz") as archive:
        for file, text in (("setup.py", setup), ("PKG-INFO", meta)):
            entry = tarfile.TarInfo(f"{name}-{version}/{file}")
            entry.size = len(text)
            archive.addfile(entry, BytesIO(text.encode()))
    return path
