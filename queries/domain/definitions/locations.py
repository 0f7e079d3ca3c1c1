"""The canonical form of checkpoint locations, used to find equal and nested ones.

Two queries on one checkpoint execute the same batches twice, and a checkpoint inside another mixes
their files; both are rejected before anything starts.
"""

import re
from collections.abc import Mapping
from typing import Any

from queries.domain.errors import Problem

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL)
_GLOB = re.compile(r"[*?\[\]{}\x00-\x1f\\]")


#: Schemes of one store: the first of each pair names the same objects as the second.
_SAME_STORE = {"s3": "s3a", "abfs": "abfss", "wasb": "wasbs"}
_NAME_NODE_PORT = ":8020"  # HDFS's default (`HdfsClientConfigKeys.DFS_NAMENODE_RPC_PORT_DEFAULT`)
#: Schemes that no Spark outside its vendor's platform can open, and what to write instead.
_UNSUPPORTED = {
    "s3n": ("uses s3n://, which Hadoop removed in version 3.", "Write s3a://."),
    "dbfs": ("uses dbfs:/, which exists only on Databricks.", "Write the store's own URI."),
}

_WITHOUT = "Write the path without it."
#: A file system with a host or a service, as `fs.defaultFS` may be set to.
_FILE_SYSTEM = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://[^/]+")
#: The default file system of a Hadoop cluster whose configuration only its drivers read.
NAMESERVICE = "hdfs://NAMESERVICE"
_ITS_NAME = "with the cluster's own name: fs.defaultFS in core-site.xml in HADOOP_CONF_DIR."


_S3 = re.compile(r"\A\s*s3(?=://)", re.IGNORECASE)
#: Parts of a definition whose text is the author's own, even if it begins with a path.
_OWN_TEXT = frozenset(
    {"code", "description", "env", "function", "packages", "params", "script", "sql"}
)


class NotALocation(ValueError):
    """The value cannot be a location; the message and `way_out` are sentences."""

    def __init__(
        self,
        message: str,
        way_out: str = "Write an absolute path or a URI such as s3a://bucket/folder.",
    ) -> None:
        super().__init__(message)
        self.way_out = way_out


def as_s3a(text: str) -> str:
    """Return a path with `s3a://` for `s3://`: EMR's name of the same bucket, unknown to Hadoop."""
    return _S3.sub("s3a", text)


def with_s3a(part: Any, notes: list[str], field: str = "") -> Any:
    """Return the JSON form of a definition, or of a part, with `as_s3a` of each path.

    Adds a sentence to `notes` for each path that changes.
    """
    prefix = f"{field}." if field else ""
    if isinstance(part, Mapping):
        return {
            name: value if name in _OWN_TEXT else with_s3a(value, notes, f"{prefix}{name}")
            for name, value in part.items()
        }
    if isinstance(part, list):
        return [with_s3a(value, notes, f"{prefix}{index}") for index, value in enumerate(part)]
    if not isinstance(part, str) or (path := as_s3a(part)) == part:
        return part
    notes.append(f"{field} is stored with s3a:// instead of s3://, which only EMR knows.")
    return path


def s3a_notes(definition: Any) -> list[str]:
    """Return a sentence for each path in a definition that is stored with `s3a://`."""
    notes: list[str] = []
    with_s3a(definition, notes)
    return notes


def canonical(text: str) -> str:
    """Return a location as "scheme://authority/path" without "." components or a trailing slash.

    A plain absolute path has the scheme "file". Resolving symbolic links is left to the caller.
    Raises `NotALocation` for relative paths, "..", wildcards and the root itself.
    """
    text = text.strip()
    if _GLOB.search(text):
        raise NotALocation("contains a wildcard or a control character.")
    match = _SCHEME.fullmatch(text)
    scheme, rest = (match[1].lower(), match[2]) if match else ("file", text)
    if scheme in _UNSUPPORTED:
        raise NotALocation(*_UNSUPPORTED[scheme])
    authority = ""
    if rest.startswith("//"):
        authority, _, rest = rest[2:].partition("/")
        rest = f"/{rest}"
    if not rest.startswith("/"):
        raise NotALocation("is not absolute.")
    if scheme == "file":
        if authority not in ("", "localhost"):
            raise NotALocation(
                f"names the host {authority}; a file must be on the driver's own host."
            )
        authority = ""
    elif not authority:
        raise _without_authority(scheme, rest)
    parts = [part for part in rest.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise NotALocation('contains "..".', _WITHOUT)
    if not parts:
        raise NotALocation("is the root of a file system.")
    return f"{scheme}://{authority}/{'/'.join(parts)}"


def _without_authority(scheme: str, path: str) -> NotALocation:
    """Return the error for a URI that only a default file system would complete."""
    if scheme == "hdfs":
        return NotALocation(
            "does not name a nameservice or NameNode after hdfs://.",
            f"Write {NAMESERVICE}{path}, {_ITS_NAME}",
        )
    return NotALocation(
        f"does not name a bucket or host after {scheme}://.", f"Write {scheme}://BUCKET{path}."
    )


def names_file_system(text: str) -> bool:
    """Return whether a path or URI means the same place with any default file system."""
    match = _SCHEME.fullmatch(text.strip())
    if match is None:
        return False
    return match[1].lower() == "file" or re.match(r"//[^/]", match[2]) is not None


def in_full(text: str, file_system: str) -> str:
    """Return a path as Hadoop completes it with a default file system (`Path.makeQualified`).

    `file_system` is `fs.defaultFS`, such as "hdfs://host:8020". A relative path, and a path that is
    complete or that this file system cannot complete, is unchanged.
    """
    default = _FILE_SYSTEM.fullmatch(file_system.rstrip("/"))
    if default is None or names_file_system(text):
        return text
    match = _SCHEME.fullmatch(text.strip())
    scheme, rest = (match[1].lower(), match[2]) if match else (default[1], text.strip())
    path = re.fullmatch(r"(?://)?(/(?!/).*)", rest, re.DOTALL)
    if path is None or scheme != default[1]:
        return text
    return f"{default[0]}{path[1]}"


def on_yarn(field: str, path: str) -> Problem:
    """Return the problem of a path that only a YARN cluster's configuration completes."""
    full = in_full(path, NAMESERVICE)[:400]
    return Problem(
        field,
        path[:200],
        "names no file system; on YARN, it would be in the cluster's default one.",
        f"Write {full}, {_ITS_NAME} A folder of this host is file://{path.strip()[:400]}.",
    )


def local_path(location: str) -> str | None:
    """Return the path of a canonical location on the local file system; None for any other."""
    return location.removeprefix("file://") if location.startswith("file:///") else None


def normalized_location(location: str) -> str:
    """Return a canonical location that is the same string for all names of one place.

    `s3://` and `s3a://` name the same bucket, and `hdfs://host` uses the default port.
    """
    scheme, _, rest = location.partition("://")
    authority, slash, path = rest.partition("/")
    if scheme == "hdfs":
        authority = authority.lower().removesuffix(_NAME_NODE_PORT)
    return f"{_SAME_STORE.get(scheme, scheme)}://{authority}{slash}{path}"


def overlaps(location: str, other: str) -> bool:
    """Return whether two canonical locations are the same place, or one is inside the other."""
    first, second = f"{normalized_location(location)}/", f"{normalized_location(other)}/"
    return first.startswith(second) or second.startswith(first)


def checkpoint_problem(location: str, holders: Mapping[str, str]) -> Problem | None:
    """Return why a canonical location cannot be used; `holders` maps locations to their queries."""
    for other, holder in sorted(holders.items()):
        if not overlaps(location, other):
            continue
        normal, other_normal = normalized_location(location), normalized_location(other)
        if normal == other_normal:
            relation = f"is the checkpoint of query {holder}."
        elif normal.startswith(other_normal):
            relation = f"is inside {other}, the checkpoint of query {holder}."
        else:
            relation = f"contains {other}, the checkpoint of query {holder}."
        return Problem("checkpoint", location, relation, "Choose a separate folder.")
    return None


class HeldLocations:
    """Checkpoints in use, prepared for fast repeated lookups."""

    def __init__(self, holders: Mapping[str, str]) -> None:
        self._holders: dict[str, tuple[str, str]] = {}  # a place -> its location and holder
        self._above: dict[str, str] = {}  # a folder -> a held place inside it
        for location, holder in holders.items():
            self.take(location, holder)

    def __contains__(self, location: str) -> bool:
        return normalized_location(location) in self._holders

    def take(self, location: str, holder: str) -> None:
        """Add a canonical location and the query that holds it."""
        normal = normalized_location(location)
        self._holders[normal] = location, holder
        for folder in _folders_of(normal):
            self._above.setdefault(folder, normal)

    def problem(self, location: str) -> Problem | None:
        """Return why a canonical location cannot be used, as `checkpoint_problem` does."""
        normal = normalized_location(location)
        near = [normal, *_folders_of(normal), self._above.get(normal, "")]
        near_holders = dict(self._holders[other] for other in near if other in self._holders)
        return checkpoint_problem(location, near_holders)


def _folders_of(location: str) -> list[str]:
    """Return the parent folders of a canonical location."""
    scheme, _, path = location.partition("://")
    parts = path.split("/")
    return [f"{scheme}://{'/'.join(parts[:length])}" for length in range(2, len(parts))]


def path_problem(field: str, text: str) -> Problem | None:
    """Return what is wrong with the path of a source or sink, or None.

    Wildcards are allowed in paths that are read. Relative paths and ".." are not allowed, because
    users do not choose the driver's working directory.
    """
    match = _SCHEME.fullmatch(text.strip())
    rest = match[2] if match else text.strip()
    if not rest.startswith("/"):
        way_out = "Start it with / or a scheme such as s3a://bucket/."
        return Problem(field, text, "is not absolute.", way_out)
    if ".." in rest.split("/"):
        return Problem(field, text, 'contains "..".', _WITHOUT)
    return None
