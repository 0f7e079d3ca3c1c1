"""Stored code: its digest, which members of an archive become files, and when it may be deleted.

Only regular files and folders inside the archive's own folder are accepted, each only once, up to
the limits for a driver's code.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from queries.domain.errors import Invalid, Problem

_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def named(sha256: str) -> str:
    """Return a digest in the form that definitions and REST use."""
    return f"sha256:{sha256}"


def sha256_of(text: str) -> str | None:
    """Return the hexadecimal digits of a digest in a definition; None if it is not a digest."""
    match = _DIGEST.fullmatch(text)
    return match[1] if match else None


def origin(spec: Mapping[str, Any]) -> str:
    """Return where an application's code comes from; "" for folders on the host."""
    code = spec.get("code") or {}
    if code.get("upload"):
        return f"upload {code['upload'][:19]}"
    if not code.get("git"):
        return ""
    folder = f", folder {code['folder']}" if code.get("folder") else ""
    ref = f" ({code['ref']})" if code.get("ref") else ""
    return f"{code['git']} at {code.get('commit', '')[:12]}{ref}{folder}"


#: The field under which every problem with an archive is reported.
FIELD = "archive"
#: Maximum bytes of a name: Linux's limit for one component, and less than its limit for a path.
LONGEST_PART, LONGEST_NAME = 255, 1000
DEEPEST = 40
#: Maximum members examined per allowed file: folders and skipped members count too.
MEMBERS_PER_FILE = 4

_PACK = "Include only plain files and folders."


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of an archive, from its header."""

    name: str
    kind: str  # "file", "folder", or any other kind as a noun: "a symbolic link"
    size: int = 0


def problem(value: str, message: str, way_out: str) -> Invalid:
    """Return an `Invalid` error that contains an archive's only problem."""
    return Invalid([Problem(FIELD, shown(value), message, way_out)])


def shown(name: str) -> str:
    """Return an archive member's name as a string that any database and page can handle."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    return plain.encode("utf-8", "replace").decode()[:200]


@dataclass(slots=True)
class Judge:
    """Check the members of one archive, one after another."""

    most_bytes: int
    most_files: int
    files: int = 0
    bytes: int = 0
    _members: int = 0
    _paths: set[str] = field(default_factory=set)
    _folders: set[str] = field(default_factory=set)

    def judge(self, member: Member) -> str:
        """Return a member's path below the folder; "" for the folder itself.

        Raises `Invalid` if the member must not become a file.
        """
        self._members += 1
        if self._members > MEMBERS_PER_FILE * self.most_files:
            raise self._too_many()
        parts = _parts(member.name)
        if member.kind not in ("file", "folder"):
            raise problem(member.name, f"is {member.kind}.", _PACK)
        path = "/".join(parts)
        if member.kind == "folder":
            self._enter(parts)
            return path
        if not parts:
            raise problem(member.name, "has no name.", _PACK)
        if path in self._paths:
            raise problem(path, "appears twice.", "Include each file once.")
        if path in self._folders:
            raise problem(path, "is both a file and a folder.", "Use each name once.")
        self._enter(parts[:-1])
        self._paths.add(path)
        self._count(member)
        return path

    def _enter(self, parts: tuple[str, ...]) -> None:
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder in self._paths:
                raise problem(folder, "is both a file and a folder.", "Use each name once.")
            self._folders.add(folder)

    def _count(self, member: Member) -> None:
        self.files += 1
        self.bytes += member.size
        if self.files > self.most_files:
            raise self._too_many()
        if self.bytes > self.most_bytes:
            raise problem(
                f"{self.bytes:,} bytes",
                f"exceeds the limit of {self.most_bytes:,} bytes for unpacked code.",
                "Remove data, or choose a smaller folder.",
            )

    def _too_many(self) -> Invalid:
        return problem(
            f"{self.files:,} files",
            f"exceeds the limit of {self.most_files:,} files.",
            "Remove data and installed packages, or choose a smaller folder.",
        )


def _parts(name: str) -> tuple[str, ...]:
    """Return the components of a member's name; raise `Invalid` if it may point elsewhere."""
    if name.startswith("/"):
        raise problem(name, "starts with /.", "Use names relative to the code folder.")
    try:
        long = len(name.encode()) > LONGEST_NAME
    except UnicodeEncodeError as error:
        raise problem(name, "is not valid UTF-8.", "Rename the file.") from error
    if any(not c.isprintable() for c in name):
        raise problem(name, "contains a control character.", "Rename the file.")
    if "\\" in name:
        raise problem(name, "contains a backslash.", "Separate folders with /.")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise problem(name, "points outside the folder.", "Use names without “..”.")
    if long or len(parts) > DEEPEST or any(len(part.encode()) > LONGEST_PART for part in parts):
        raise problem(name, "is too long.", "Shorten the names of the file and its folders.")
    return parts


#: Maximum time between a launch's use of a folder and the creation of its driver's row.
LAUNCH = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class StoredFolder:
    """A folder named by the digest of its contents or of its request."""

    name: str
    used_at: datetime  # stored, or last used by a start


def forgotten(
    contents: Iterable[StoredFolder],
    *,
    named: Collection[str],
    before: datetime,
    oldest_driver: datetime | None = None,
) -> list[str]:
    """Return the contents that may be deleted, least recently used first.

    named: the contents that definitions, runs and unfinished work refer to. oldest_driver: when the
    oldest live driver was launched; it may still use contents from that time that are no longer
    referenced (such as packages after an upgrade). None if everything that drivers use is in
    `named`.
    """
    expired_contents = [
        content
        for content in contents
        if content.name not in named
        and content.used_at < before
        and (oldest_driver is None or content.used_at < oldest_driver - LAUNCH)
    ]
    return [
        content.name
        for content in sorted(expired_contents, key=lambda content: (content.used_at, content.name))
    ]
