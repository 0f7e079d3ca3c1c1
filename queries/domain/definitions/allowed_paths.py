"""Allowed paths: the folders and URL prefixes in which a definition may read and write.

Without them, a SQL author can read every file that the drivers' account can read, including the
control plane's own. The innermost folder decides: an allowed path inside the control plane's
folders is data, and a folder of the control plane inside an allowed path is not.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from queries.domain.definitions.locations import (
    NotALocation,
    as_s3a,
    canonical,
    local_path,
    normalized_location,
)
from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import PythonQuery, SqlQuery, StrictForm
from queries.domain.errors import Invalid, Problem

#: Reader and writer options that specify a location, in lower case (Spark: the options of file
#: sources and Avro).
PATHS = frozenset({"path", "basepath", "sourcearchivedir", "avroschemaurl"})
#: Kafka client options that specify a location: files opened by the driver, and by the worker too.
_CLIENT_FILE = re.compile(r"kafka\..*\b(location|file|path|dir)", re.IGNORECASE)
#: Options of connectors' formats that may specify a location, if the value is a path on this host.
_BY_NAME = re.compile(r"(.*[a-z0-9._-])?(path|location|dir|directory|file)", re.IGNORECASE)
_LOCAL = re.compile(r"\s*(/|file:|\.\.?/).*", re.IGNORECASE | re.DOTALL)
_LOCAL_URL = re.compile(r"\s*file:/.*", re.IGNORECASE | re.DOTALL)
#: Configuration that specifies a location. Catalog options are compared case-insensitively.
_CONF = re.compile(
    r"spark\.(eventLog\.dir|sql\.warehouse\.dir|sql\.catalog\..+\.warehouse|python\.profile\.dump"
    r"|storage\.decommission\.fallbackStorage\.path|storage\.replication\.topologyFile"
    r"|kafka\.clusters\..+\.(location|file))",
    re.IGNORECASE,
)
_WAREHOUSE = re.compile(r"spark\.sql\.(catalog\..+\.)?warehouse(\.dir)?", re.IGNORECASE)
#: Catalog options that specify a location if the value is a path or URL: "true" is neither.
_CONF_OF_CATALOGS = re.compile(
    r"spark\.sql\.catalog\..+[.-](path|location|dir|file)", re.IGNORECASE
)
#: Hadoop's wildcards (`org.apache.hadoop.fs.Globber`).
_WILDCARD = re.compile(r"[*?\[{]")
_UP = re.compile(r"(?:^|[/{,])\.\.(?:$|[/},])")
_BUCKET = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://([^/*?\[\]{}\\\s]+)/?")
_SHOWN = 4  # roots listed in a sentence


class RootForm(StrictForm):
    """An allowed path for an application.

    application: Its name.
    path: An absolute path, or a URL such as s3a://bucket/orders.
    """

    application: Annotated[str, Field(max_length=80)]
    path: Annotated[str, Field(max_length=1000)]


def parse_given_root(raw: Mapping[str, Any]) -> RootForm:
    """Return an application's path as a local path or canonical URL; raise `Invalid` otherwise."""
    form = parsed(RootForm.model_validate, raw)
    problems = []
    if not form.application:
        message = "is missing."
        problems.append(
            Problem("application", "", message, "Enter the application that can use the path.")
        )
    location = ""
    try:
        location = root_of(as_s3a(form.path))
    except NotALocation as error:
        problems.append(Problem("path", form.path[:200], str(error), error.way_out))
    if problems:
        raise Invalid(problems)
    path = "/" if location == "file://" else local_path(location) or location
    return form.model_copy(update={"path": path})


def root_of(text: str) -> str:
    """Return the canonical location of a root: "file://" for all files, or a whole bucket.

    Raises `NotALocation`.
    """
    if text.strip() == "/":
        return "file://"
    if whole := _BUCKET.fullmatch(text.strip()):
        return f"{whole[1].lower()}://{whole[2]}"
    return canonical(text)


def fixed_part(text: str) -> str:
    """Return the canonical location of the part of a path before its first wildcard.

    Raises `NotALocation`, including when a wildcard could lead upwards.
    """
    if "\\" in text:
        raise NotALocation("contains a backslash.", "Write the path without it.")
    if _UP.search(text):
        raise NotALocation('contains "..".', "Write the path without it.")
    wild = _WILDCARD.search(text)
    return canonical(text[: text.rfind("/", 0, wild.start()) + 1] if wild else text)


@dataclass(frozen=True, slots=True)
class AllowedPaths:
    """The canonical locations allowed for data, with links resolved; "file://" allows all files."""

    roots: tuple[str, ...]
    own: tuple[str, ...] = ()  # the control plane's folders

    def refusal(self, location: str) -> str:
        """Return why a canonical location is not allowed; "" if it is allowed."""
        root, own = _innermost(location, self.roots), _innermost(location, self.own)
        if root is None:
            return "is outside the allowed paths."
        if own is not None and len(own) >= len(root):
            return "belongs to Headgate itself."
        own_folders = [folder for folder in self.own if folder.startswith(f"{location}/")]
        return (
            f"contains {min(own_folders)}, which belongs to Headgate itself." if own_folders else ""
        )

    def problem(self, field: str, text: str, resolve: Callable[[str], str]) -> Problem | None:
        """Return what is wrong with a path; `resolve` follows the links of a local path."""
        try:
            refused = self.refusal(resolved(fixed_part(text), resolve))
        except NotALocation as error:
            return Problem(field, text[:200], str(error), f"{error.way_out} {self.way_out}")
        return Problem(field, text[:200], refused, self.way_out) if refused else None

    @property
    def way_out(self) -> str:
        """Return a sentence that lists the places where data may be stored."""
        shown = [local_path(root) or root for root in self.roots[:_SHOWN]]
        more = ", …" if len(self.roots) > _SHOWN else ""
        use = f"Use a folder in {', '.join(shown)}{more}, or ask" if shown else "Ask"
        return (
            f"{use} an admin to allow the path for the application: Settings → Allowed paths "
            "(HEADGATE_ALLOWED_PATHS applies to all)."
        )


def resolved(location: str, resolve: Callable[[str], str]) -> str:
    """Return a canonical location; if it is local, its links are resolved."""
    path = local_path(location)
    return canonical(resolve(path)) if path else location


def places(spec: SqlQuery | PythonQuery) -> Iterator[tuple[str, str]]:
    """Yield (field, text) for every location in a definition."""
    parts = [("sink", spec.sink)] if spec.sink else []
    if isinstance(spec, SqlQuery):
        parts += [(f"sources.{index}", source) for index, source in enumerate(spec.sources)]  # type: ignore[misc]
        parts += [(f"tables.{index}", table) for index, table in enumerate(spec.tables)]  # type: ignore[misc]
        from queries.domain.definitions.sql_text import paths_in  # brings sqlglot, 7 MB

        yield from (("sql", path) for path in paths_in(spec))
    if spec.schedule is not None and spec.schedule.files:
        yield "schedule.files", spec.schedule.files
    for field, part in parts:
        yield from option_places(f"{field}.options", part.options)
    yield from conf_places(spec.conf)


def option_places(field: str, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the locations in a reader's or writer's options, skipping references to secrets."""
    yield from (
        (f"{field}.{key}", value) for key, value in options.items() if _is_location(key, value)
    )


def unnamed_places(named: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield those places, by field and text, that Hadoop completes with its default file system.

    It does so for data, warehouses and checkpoints, but not for the files of a Kafka client.
    """
    for field, text in named:
        path = text.strip()
        if not path.startswith("/") or path.startswith("//"):
            continue
        _, is_option, option = field.partition(".options.")
        _, is_conf, key = field.partition("conf.")
        if is_option:
            completed = option.lower() in PATHS
        else:
            completed = not is_conf or _WAREHOUSE.fullmatch(key) is not None
        if completed:
            yield field, text


def conf_places(conf: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the locations in Spark configuration."""
    for key, value in conf.items():
        if _CONF.fullmatch(key) or ("/" in value and _CONF_OF_CATALOGS.fullmatch(key)):
            yield f"conf.{key}", value


def _is_location(option: str, value: str) -> bool:
    """Return whether a reader or writer option with this value specifies a location."""
    if option.lower() in PATHS or _CLIENT_FILE.fullmatch(option) or _LOCAL_URL.fullmatch(value):
        return True
    return _BY_NAME.fullmatch(option) is not None and _LOCAL.fullmatch(value) is not None


def lies_in(location: str, folders: tuple[str, ...]) -> bool:
    """Return whether a location is one of the folders, or is inside one."""
    return _innermost(location, folders) is not None


def _innermost(location: str, folders: tuple[str, ...]) -> str | None:
    """Return the longest of the folders that contain a location."""
    path = f"{normalized_location(location)}/"
    containing = [
        folder for folder in folders if path.startswith(f"{normalized_location(folder)}/")
    ]
    return max(containing, key=len, default=None)
