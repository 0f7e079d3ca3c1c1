"""A small file system of a test's own, and how it is filled; only root may mount one."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(folder: Path, size_mb: int) -> Iterator[Path]:
    """Mount a file system of this size on a new folder; skip where this process may not."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small file system for the data folder cannot be mounted here: run as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=30)


def fill(disk: Path) -> None:
    """Take every block that is free, in the file `ballast`."""
    with (disk / "ballast").open("ab", buffering=0) as ballast:
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while ballast.write(b"\0" * size):
                    pass


def free(disk: Path) -> None:
    """Give back what `fill` has taken."""
    (disk / "ballast").unlink(missing_ok=True)


def is_full(disk: Path) -> bool:
    """Tell whether less than 1 MB is free."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize < 1_000_000
