"""Data roots: the folders and URL prefixes in which a definition may read and write.

Without them an author of SQL reads every file that the drivers' account can read, the control
plane's own among them. The innermost folder decides: a data root within the control plane's
folders is data, and a folder of the control plane within a data root is not.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, ValidationError

from queries.domain.definitions.locations import NotALocation, canonical, local_path
from queries.domain.definitions.parsing import shape_problems
from queries.domain.definitions.spec import PythonQuery, SqlQuery, StrictForm
from queries.domain.definitions.sql_text import paths_in
from queries.domain.errors import Invalid, Problem

#: Options of readers and writers that name a place, in lower case (Spark: the file sources' and
#: Avro's options).
PATHS = frozenset({"path", "basepath", "sourcearchivedir", "avroschemaurl"})
#: Options of Kafka's clients that do: files that the driver opens, and the worker as well.
_CLIENT_FILE = re.compile(r"kafka\..*\b(location|file|path|dir)", re.IGNORECASE)
#: Options of connectors' formats that may, where the value is a path of this host's.
_BY_NAME = re.compile(r"(.*[a-z0-9._-])?(path|location|dir|directory|file)", re.IGNORECASE)
_LOCAL = re.compile(r"\s*(/|file:|\.\.?/).*", re.IGNORECASE | re.DOTALL)
_LOCAL_URL = re.compile(r"\s*file:/.*", re.IGNORECASE | re.DOTALL)
#: Configuration that names one. Options of catalogs are compared without case.
_CONF = re.compile(
    r"spark\.(eventLog\.dir|sql\.warehouse\.dir|sql\.catalog\..+\.warehouse|python\.profile\.dump"
    r"|storage\.decommission\.fallbackStorage\.path|storage\.replication\.topologyFile"
    r"|kafka\.clusters\..+\.(location|file))",
    re.IGNORECASE,
)
#: Of a catalog, where the value is a path or URL: "true" is none.
_CONF_OF_CATALOGS = re.compile(
    r"spark\.sql\.catalog\..+[.-](path|location|dir|file)", re.IGNORECASE
)
#: Hadoop's wildcards (`org.apache.hadoop.fs.Globber`).
_WILDCARD = re.compile(r"[*?\[{]")
_UP = re.compile(r"(?:^|[/{,])\.\.(?:$|[/},])")
_BUCKET = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://([^/*?\[\]{}\\\s]+)/?")
_SHOWN = 4  # roots in a sentence


class GivenRootForm(StrictForm):
    """What an admin writes to give a data root to one application."""

    application: Annotated[str, Field(max_length=80)]  # its name
    root: Annotated[str, Field(max_length=1000)]  # an absolute path, or a URL's prefix


def parse_given_root(raw: Mapping[str, Any]) -> GivenRootForm:
    """Return a root for an application, as a path or canonical URL; raise `Invalid` otherwise."""
    try:
        form = GivenRootForm.model_validate(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error
    problems = []
    if not form.application:
        message = "is missing."
        problems.append(Problem("application", "", message, "Name who may use the root."))
    location = ""
    try:
        location = root_of(form.root)
    except NotALocation as error:
        way_out = "Write an absolute path, or a URL such as s3a://bucket/folder."
        problems.append(Problem("root", form.root[:200], str(error), way_out))
    if problems:
        raise Invalid(problems)
    root = "/" if location == "file://" else local_path(location) or location
    return form.model_copy(update={"root": root})


def root_of(text: str) -> str:
    """Return the canonical location of a root: "file://" for all files, a bucket as a whole too.

    Raises `NotALocation`.
    """
    if text.strip() == "/":
        return "file://"
    if whole := _BUCKET.fullmatch(text.strip()):
        return f"{whole[1].lower()}://{whole[2]}"
    return canonical(text)


def fixed_part(text: str) -> str:
    """Return the canonical location of what stands before a path's first wildcard.

    Raises `NotALocation`, also where a wildcard could lead upwards.
    """
    if "\\" in text:
        raise NotALocation("contains a backslash.")
    if _UP.search(text):
        raise NotALocation('contains "..".')
    wild = _WILDCARD.search(text)
    return canonical(text[: text.rfind("/", 0, wild.start()) + 1] if wild else text)


@dataclass(frozen=True, slots=True)
class DataRoots:
    """Where data may lie, as canonical locations with links resolved; "file://" is everywhere."""

    roots: tuple[str, ...]
    own: tuple[str, ...] = ()  # the control plane's folders

    def refusal(self, location: str) -> str:
        """Return why a canonical location may not be used, "" where it may."""
        root, own = _innermost(location, self.roots), _innermost(location, self.own)
        if root is None:
            return "is outside of the data roots."
        if own is not None and len(own) >= len(root):
            return "belongs to Headgate itself."
        held = [one for one in self.own if one.startswith(f"{location}/")]
        return f"contains {min(held)}, which belongs to Headgate itself." if held else ""

    def problem(self, field: str, text: str, resolve: Callable[[str], str]) -> Problem | None:
        """Return what is wrong with a path; `resolve` follows the links of a local one."""
        try:
            refused = self.refusal(resolved(fixed_part(text), resolve))
        except NotALocation as error:
            refused = str(error)
        return Problem(field, text[:200], refused, self.way_out) if refused else None

    @property
    def way_out(self) -> str:
        """Return the sentence that says where data may lie."""
        shown = [local_path(root) or root for root in self.roots[:_SHOWN]]
        more = ", …" if len(self.roots) > _SHOWN else ""
        return (
            f"Use a folder in {', '.join(shown)}{more}, or ask an admin to give the application "
            "another one: Settings → Data roots (HEADGATE_DATA_ROOTS is for all)."
        )


def resolved(location: str, resolve: Callable[[str], str]) -> str:
    """Return a canonical location with the links of a local one followed."""
    path = local_path(location)
    return canonical(resolve(path)) if path else location


def places(spec: SqlQuery | PythonQuery) -> Iterator[tuple[str, str]]:
    """Yield every place that a definition names: its field and the text."""
    parts = [("sink", spec.sink)] if spec.sink else []
    if isinstance(spec, SqlQuery):
        parts += [(f"sources.{place}", one) for place, one in enumerate(spec.sources)]  # type: ignore[misc]
        parts += [(f"tables.{place}", one) for place, one in enumerate(spec.tables)]  # type: ignore[misc]
        yield from (("sql", path) for path in paths_in(spec))
    for field, part in parts:
        yield from option_places(f"{field}.options", part.options)
    yield from conf_places(spec.conf)


def option_places(field: str, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the places that a reader's or writer's options name, without references to secrets."""
    yield from ((f"{field}.{key}", held) for key, held in options.items() if _is_place(key, held))


def conf_places(conf: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the places that Spark configuration names."""
    for key, value in conf.items():
        if _CONF.fullmatch(key) or ("/" in value and _CONF_OF_CATALOGS.fullmatch(key)):
            yield f"conf.{key}", value


def _is_place(option: str, value: str) -> bool:
    """Return whether an option of a reader or writer names a place by this value."""
    if option.lower() in PATHS or _CLIENT_FILE.fullmatch(option) or _LOCAL_URL.fullmatch(value):
        return True
    return _BY_NAME.fullmatch(option) is not None and _LOCAL.fullmatch(value) is not None


def lies_in(location: str, folders: tuple[str, ...]) -> bool:
    """Return whether a location is one of the folders, or below one."""
    return _innermost(location, folders) is not None


def _innermost(location: str, folders: tuple[str, ...]) -> str | None:
    """Return the longest of the folders that hold a location."""
    held = [one for one in folders if f"{location}/".startswith(f"{one}/")]
    return max(held, key=len, default=None)
