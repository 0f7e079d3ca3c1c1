"""List the installed connectors, which are folders of jars, and the applications that use them.

Definitions name connectors, never jars. A connector is installed atomically (for example by `make
kafka`), so a folder that contains jars is ready. Its jars are for one version of Spark: those for
other versions than ours are in a folder named by the version (`connectors/4.2/kafka`).
"""

import logging
import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from django.conf import settings

from headgate_ground.files import read_file
from headgate_server import places
from listeners.loops.troubles import each
from queries.domain.definitions.declared_connectors import (
    FILE,
    Declared,
    NotDeclared,
    conf_of,
    read,
)
from queries.domain.sparks import OURS, Spark
from queries.domain.validation.formats import connector_way_out
from queries.models.applications import Application
from queries.selectors.supervision.drift import newest_application_revisions

_each = each("connectors", logging.getLogger(__name__))

_LONGEST = 100_000  # characters of a connector.toml
_JAR = re.compile(r"(?P<artifact>.+)-(?P<version>\d[\w.]*(?:-[A-Za-z][\w.]*)?)\.jar")


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
    folder: str
    jars: tuple[Jar, ...]  # by name; empty: not installed
    applications: tuple[str, ...]  # living ones that name it, by name
    declared: Declared = NOTHING  # its own declaration
    fault: str = ""  # why that cannot be read

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
        spark = version("pyspark")
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
        return places.with_local_commands(connector_way_out(self.name, recipes()))


def connectors() -> list[Connector]:
    """Return the connectors that are installed or that an application names, by name."""
    named = _named()
    return [
        _connector(name, tuple(named.get(name, ())))
        for name in sorted(ready_connectors() | set(named))
    ]


def not_installed() -> list[Connector]:
    """Return the connectors that a command would download, by name."""
    return [_connector(name) for name in sorted(recipes() - ready_connectors())]


def _connector(name: str, applications: tuple[str, ...] = ()) -> Connector:
    declared, fault = _declared(name)
    return Connector(
        name=name,
        folder=str(Path(settings.CONNECTORS_DIR) / name),
        jars=tuple(_jar(path) for path in jars_of(name)),
        applications=applications,
        declared=declared,
        fault=fault,
    )


def declared_connectors(spark: Spark = OURS) -> dict[str, Declared]:
    """Return the declarations of the connectors installed for a version of Spark, by name."""
    return {name: _declared(name, spark)[0] for name in ready_connectors(spark)}


def conf_of_connectors(names: tuple[str, ...], spark: Spark = OURS) -> dict[str, str]:
    """Return the configuration that loads these connectors into Spark."""
    return conf_of(_declared(name, spark)[0] for name in names)


def _declared(name: str, spark: Spark = OURS) -> tuple[Declared, str]:
    """Return a connector's declaration, or why it cannot be read.

    A folder that contains only jars is described by the recipe with its name, if there is one.
    """
    for folder in (folder_for(spark), _recipes_folder()):
        if (text := read_file(folder / name / FILE, most=_LONGEST)) is not None:
            try:
                return read(text), ""
            except NotDeclared as error:
                return NOTHING, str(error)
    return NOTHING, ""


def recipes(spark: Spark = OURS) -> frozenset[str]:
    """Return the names of the connectors that a command downloads for a version of Spark."""
    found = frozenset(path.parent.name for path in _recipes_folder().glob(f"*/{FILE}"))
    if spark == OURS:
        return found
    return frozenset(name for name in found if spark in _recipe(name).versions)


def _recipe(name: str) -> Declared:
    text = read_file(_recipes_folder() / name / FILE, most=_LONGEST)
    return NOTHING if text is None else read(text)


def _recipes_folder() -> Path:
    return Path(settings.BASE_DIR) / "connectors"


def folder_for(spark: Spark) -> Path:
    """Return the folder of the connectors for a version of Spark."""
    found = Path(settings.CONNECTORS_DIR)
    return found if spark == OURS else found / spark


def ready_connectors(spark: Spark = OURS) -> frozenset[str]:
    """Return the names of the connectors installed on this host for a version of Spark."""
    folder = folder_for(spark)
    if not folder.is_dir():
        return frozenset()
    return frozenset(
        each.name
        for each in folder.iterdir()
        if not each.name.startswith(".") and any(each.glob("*.jar"))
    )


def jars_of(name: str, spark: Spark = OURS) -> list[Path]:
    """Return a connector's jars for a version of Spark, by name; none if it is not installed."""
    if name not in ready_connectors(spark):
        return []
    return sorted((folder_for(spark) / name).glob("*.jar"))


def _named() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    living = Application.objects.filter(archived_at=None).order_by("name")
    newest = newest_application_revisions(living.values_list("pk", flat=True))
    for application in living:
        revision = newest.get(application.pk)
        with _each.by_itself(f"application {application.name}"):
            for name in (revision.spec.get("connectors") or ()) if revision else ():
                found.setdefault(str(name), []).append(application.name)
    return found


def _jar(path: Path) -> Jar:
    read = _JAR.fullmatch(path.name)
    size = path.stat().st_size
    if read is None:
        return Jar(path.name, path.name.removesuffix(".jar"), "", size)
    return Jar(path.name, read["artifact"], read["version"], size)
