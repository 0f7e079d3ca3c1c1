"""Read definitions of queries and applications, and the connectors that they can use.

Only the columns needed are read, because a create request reads them for all queries, under a lock.

Definitions name connectors, never jars. A connector is installed atomically (for example by `make
kafka`), so a folder that contains jars is ready. Its jars are for one Spark version: those for
other versions than ours are in a folder named by the version (`connectors/4.2/kafka`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path
from typing import Generic, TypeVar

from django.conf import settings
from django.db.models import QuerySet

from headgate_ground.files import read_file
from headgate_server import downloads, places
from queries.domain.code.archives import LONGEST_PART
from queries.domain.definitions.declarations import FILE, Declared, NotDeclared, conf_of, read
from queries.domain.errors import Missing
from queries.domain.sparks import OURS, SPARKS, Spark
from queries.domain.validation.formats import connector_way_out
from queries.models.applications import Application, ApplicationRevision, SchedulerPool
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.selectors import visible
from queries.selectors.definitions.sparks import SparkUser, spark_users, sum_of
from queries.selectors.rows import first_or_missing
from queries.selectors.supervision import applications


def held_checkpoints(*, but: Query | None = None) -> dict[str, str]:
    """Return the checkpoints in use, by location, with the query that uses each.

    `but` excludes one query's own.
    """
    rows = Checkpoint.objects.filter(retired_at=None).order_by()
    if but is not None:
        rows = rows.exclude(query=but)
    return dict(rows.values_list("location", "query__name"))


def retired_locations() -> set[str]:
    """Return the locations where queries, deleted or not, have left their files."""
    rows = Checkpoint.objects.exclude(retired_at=None).order_by()
    return set(rows.values_list("location", flat=True))


R = TypeVar("R", QueryRevision, ApplicationRevision)


@dataclass(frozen=True, slots=True)
class _Definition(Generic[R]):
    """Revisions, newest first."""

    owner: str  # what is defined, for messages
    revisions: tuple[R, ...]

    @property
    def newest(self) -> R:
        """Return the newest revision."""
        return self.revisions[0]

    def numbered(self, number: int) -> R:
        """Return the revision with this number; raise `Missing` if there is none."""
        for revision in self.revisions:
            if revision.number == number:
                return revision
        raise Missing(f"The {self.owner} has no revision {number}.")


@dataclass(frozen=True, slots=True)
class QueryDefinition(_Definition[QueryRevision]):
    """An existing query and its revisions."""

    query: Query
    checkpoint: str


@dataclass(frozen=True, slots=True)
class ApplicationDefinition(_Definition[ApplicationRevision]):
    """An existing application, its revisions, and its pools."""

    application: Application
    pools: tuple[SchedulerPool, ...]

    @property
    def resolved_at(self) -> datetime | None:
        """Return when the code's branch or tag was resolved; None if it is neither."""
        code = self.newest.spec.get("code") or {}
        same = takewhile(lambda one: one.spec.get("code") == code, self.revisions)
        return [one.created_at for one in same][-1] if code.get("ref") else None


def query_definition(name: str) -> QueryDefinition:
    """Return an existing query's definition; raise `Missing` if no query has that name."""
    row = query(name)
    checkpoint = row.checkpoints.filter(retired_at__isnull=True).first()
    return QueryDefinition(
        owner=f"query {name}",
        query=row,
        revisions=tuple(row.revisions.order_by("-number")),
        checkpoint=checkpoint.location if checkpoint else "",
    )


def application_definition(name: str) -> ApplicationDefinition:
    """Return an existing application's definition; raise `Missing` if there is none."""
    application = applications.application(name)
    return ApplicationDefinition(
        owner=f"application {name}",
        application=application,
        revisions=tuple(application.revisions.order_by("-number")),
        pools=tuple(application.pools.order_by("name")),
    )


def shared_application_names() -> list[str]:
    """Return the names of applications that were not created for a single query."""
    rows = visible.applications().filter(archived_at__isnull=True, own=False)
    return list(rows.order_by("name").values_list("name", flat=True))


def pool_names() -> list[tuple[str, str]]:
    """Return (pool, application) of every pool."""
    rows = SchedulerPool.objects.filter(application__archived_at__isnull=True)
    return list(rows.order_by("name", "application__name").values_list("name", "application__name"))


def query(name: str) -> Query:
    """Return an existing query; raise `Missing` if no query has that name."""
    rows = visible.queries().select_related("application", "target_revision")
    return first_or_missing(
        rows.filter(name=name, archived_at__isnull=True),
        f'Query "{name}" does not exist.',
        way_out="Check its name in the list of queries.",
    )


def revisions_of(row: Query) -> QuerySet[QueryRevision]:
    """Return a query's revisions, newest first."""
    return QueryRevision.objects.filter(query=row).order_by("-number")


_LONGEST = 100_000  # characters of a connector.toml


@dataclass(frozen=True, slots=True)
class Jar:
    """A file of a connector."""

    file: str
    artifact: str  # the file's name without its version
    version: str  # "" if the name has none
    bytes: int


NOTHING = Declared()


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector that is installed, or that an application names although it is not installed."""

    name: str
    spark: Spark  # the version of Spark that its jars are for
    folder: str
    jars: tuple[Jar, ...]  # by name; empty: not installed
    applications: tuple[str, ...]  # living ones on that Spark that name it, by name
    declared: Declared = NOTHING  # its own declaration
    fault: str = ""  # why that cannot be read
    differing: tuple[str, ...] = ()  # a sentence for each file that is not what was downloaded
    summed: bool = False  # whether it has checksums
    recipe: bool = False  # whether a command downloads it

    @property
    def ready(self) -> bool:
        """Return whether the connector is installed, so that drivers can use it."""
        return bool(self.jars)

    @property
    def bytes(self) -> int:
        """Return the total size of the connector's jars."""
        return sum(jar.bytes for jar in self.jars)

    @property
    def note(self) -> str:
        """Return a note for users if it was not tested with this Spark version; else ""."""
        if self.fault or not self.ready:
            return self.fault
        spark = version("pyspark") if self.spark == OURS else self.spark
        if self.declared == NOTHING:
            return f"It has no {FILE}, so its formats and required Spark version are unknown."
        if self.declared.tested(spark):
            return ""
        if not self.declared.tested_with:
            return "It has not been tested with any version of Spark."
        tested = ", ".join(self.declared.tested_with)
        return f"It was not tested with Spark {spark}, but with {tested}."

    @property
    def way_out(self) -> str:
        """Return the sentence that explains how to install the connector."""
        known = recipes(self.spark)
        return places.with_local_commands(connector_way_out(self.name, known, self.spark))


def connectors() -> list[Connector]:
    """Return the connectors that are installed or that an application names.

    Those for the newest Spark version come first; those for the same version are by name.
    """
    users = [one for one in spark_users() if one.driver is None]
    return [
        _connector(name, spark, users)
        for spark in reversed(SPARKS)
        for name in sorted(
            ready_connectors(spark)
            | {name for one in users if one.spark == spark for name in one.connectors}
        )
    ]


def not_installed(sparks: Iterable[Spark] = (OURS,)) -> list[Connector]:
    """Return the connectors that a command would download for these Spark versions."""
    return [
        _connector(name, spark)
        for spark in sparks
        for name in sorted(recipes(spark) - ready_connectors(spark))
    ]


def _connector(name: str, spark: Spark, users: Iterable[SparkUser] = ()) -> Connector:
    declared, fault = _declared(name, spark)
    folder = folder_for(spark) / name
    return Connector(
        name=name,
        spark=spark,
        folder=str(folder),
        jars=tuple(_jar(path) for path in jars_of(name, spark)),
        applications=tuple(
            one.application for one in users if one.spark == spark and name in one.connectors
        ),
        declared=declared,
        fault=fault,
        differing=tuple(downloads.differing(folder, sum_of)),
        summed=(folder / downloads.SUMS).exists(),
        recipe=name in recipes(spark),
    )


def declared_connectors(spark: Spark = OURS) -> dict[str, Declared]:
    """Return the declarations of the connectors installed for a Spark version, by name."""
    return {name: _declared(name, spark)[0] for name in ready_connectors(spark)}


def conf_of_connectors(names: tuple[str, ...], spark: Spark = OURS) -> dict[str, str]:
    """Return the configuration that loads these connectors into Spark."""
    return conf_of(_declared(name, spark)[0] for name in names)


def _declared(name: str, spark: Spark = OURS) -> tuple[Declared, str]:
    """Return a connector's declaration, or why it cannot be read.

    A folder that contains only jars is described by the recipe with its name, if there is one.
    """
    if Path(name).name != name or len(name.encode()) > LONGEST_PART:
        return NOTHING, ""  # written in a definition that has not been checked yet
    for folder in (folder_for(spark), _recipes_folder()):
        if (text := read_file(folder / name / FILE, most=_LONGEST)) is not None:
            try:
                return read(text), ""
            except NotDeclared as error:
                return NOTHING, str(error)
    return NOTHING, ""


def recipes(spark: Spark = OURS) -> frozenset[str]:
    """Return the names of the connectors that a command downloads for a Spark version."""
    names = (path.parent.name for path in _recipes_folder().glob(f"*/{FILE}"))
    return frozenset(name for name in names if _is_for(_recipe(name), spark))


def _is_for(recipe: Declared, spark: Spark) -> bool:
    return bool(recipe.packages) if spark == OURS else spark in recipe.versions


def _recipe(name: str) -> Declared:
    text = read_file(_recipes_folder() / name / FILE, most=_LONGEST)
    return NOTHING if text is None else read(text)


def _recipes_folder() -> Path:
    return Path(settings.BASE_DIR) / "connectors"


def folder_for(spark: Spark) -> Path:
    """Return the folder of the connectors for a Spark version."""
    found = Path(settings.CONNECTORS_DIR)
    return found if spark == OURS else found / spark


def ready_connectors(spark: Spark = OURS) -> frozenset[str]:
    """Return the names of the connectors installed on this host for a Spark version."""
    folder = folder_for(spark)
    if not folder.is_dir():
        return frozenset()
    return frozenset(
        each.name
        for each in folder.iterdir()
        if not each.name.startswith(".") and any(each.glob("*.jar"))
    )


def jars_of(name: str, spark: Spark = OURS) -> list[Path]:
    """Return a connector's jars for a Spark version, by name; none if it is not installed."""
    if name not in ready_connectors(spark):
        return []
    return sorted((folder_for(spark) / name).glob("*.jar"))


def _jar(path: Path) -> Jar:
    read = downloads.JAR.fullmatch(path.name)
    size = path.stat().st_size
    if read is None:
        return Jar(path.name, path.name.removesuffix(".jar"), "", size)
    return Jar(path.name, read["artifact"], read["version"], size)
