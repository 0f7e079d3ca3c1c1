"""Find this host's file systems that are full or nearly, by the folders that queries may use."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.conf import settings

#: A small file system is full from this share of its size: a limit in MB would never be met there.
LEAST_FREE = 0.1


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of one folder; sizes are bytes."""

    path: str
    mount: str  # the folder at which it is mounted
    device: int
    size: int
    free: int  # for accounts other than root
    holds_more: bool = True  # False: it has no inode left for another file or folder

    @property
    def low(self) -> bool:
        """Return whether it has too little space, or no inode."""
        return bool(self.missing) or not self.holds_more

    @property
    def missing(self) -> int:
        """Return how many bytes must be freed until it is no longer reported; 0 if none."""
        return max(0, min(settings.DISK_WARNING_MB * 1_000_000, self._share) - self.free)

    @property
    def _share(self) -> int:
        return int(self.size * LEAST_FREE)

    @property
    def sentence(self) -> str:
        """Return path, file system, and what is free and missing."""
        text = (
            f"{self.path} is on the file system mounted at {self.mount}: {_mb(self.free)} of "
            f"{_mb(self.size)} are free"
        )
        if self.missing:
            text += f", {_mb(self.missing)} too little"
        return f"{text}." if self.holds_more else f"{text}, but no inode: it has too many files."


def disk_of(path: str) -> Disk | None:
    """Return the file system of a folder or file, or of its nearest parent that exists.

    None if it cannot be read, or if nothing can be written to it: what is mounted read-only is
    always full.
    """
    at = os.path.realpath(path)
    while not os.path.lexists(at) and at != os.sep:
        at = os.path.dirname(at)
    try:
        file_system, device = os.statvfs(at), os.stat(at).st_dev
        while not os.path.ismount(at):
            at = os.path.dirname(at)
    except OSError:
        return None
    if file_system.f_flag & os.ST_RDONLY or not file_system.f_blocks:
        return None
    unit = file_system.f_frsize
    holds_more = bool(
        file_system.f_favail or not file_system.f_files
    )  # some file systems count none
    return Disk(
        path, at, device, file_system.f_blocks * unit, file_system.f_bavail * unit, holds_more
    )


def home_disk() -> Disk | None:
    """Return the file system of HEADGATE_HOME, which has a part of its own in the health."""
    return disk_of(str(settings.HEADGATE_HOME))


def low_disks(paths: Iterable[str]) -> Iterator[Disk]:
    """Yield each file system with too little space, other than that of HEADGATE_HOME, once."""
    home = home_disk()
    devices = {home.device} if home else set()
    for path in paths:
        disk = disk_of(path)
        if disk is not None and disk.device not in devices:
            devices.add(disk.device)
            if disk.low:
                yield disk


def fullest(paths: Iterable[str]) -> Disk | None:
    """Return the file system of these folders with the least free space; None without any."""
    disks = [disk for path in paths if (disk := disk_of(path)) is not None]
    return min(disks, key=lambda disk: (disk.holds_more, disk.free), default=None)


def _mb(size: int) -> str:
    return f"{size / 1_000_000:,.0f} MB"
