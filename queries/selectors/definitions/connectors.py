"""List the connectors that are installed, as folders of jars, and the applications that name them.

Definitions name connectors and never jars. A connector is put into place whole (`make kafka`
does so), so a folder that holds jars is ready.
"""

import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from django.conf import settings

from queries.domain.definitions.declared_connectors import (
    FILE,
    Declared,
    NotDeclared,
    conf_of,
    read,
)
from queries.domain.validation.formats import connector_way_out
from queries.files import read_file
from queries.models.applications import Application
from queries.selectors.supervision.drift import newest_application_revisions

_LONGEST = 100_000  # characters of a connector.toml
_JAR = re.compile(r"(?P<artifact>.+)-(?P<version>\d[\w.]*(?:-[A-Za-z][\w.]*)?)\.jar")


@dataclass(frozen=True, slots=True)
class Jar:
    """One file of a connector."""

    file: str
    artifact: str  # the file's name without its version
    version: str  # "" where the name holds none
    bytes: int


NOTHING = Declared()


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector that is installed, or that an application names although it is not."""

    name: str
    folder: str
    jars: tuple[Jar, ...]  # by name; none: it is not there
    applications: tuple[str, ...]  # living ones that name it, by name
    declared: Declared = NOTHING  # what it says of itself
    fault: str = ""  # why that cannot be read

    @property
    def ready(self) -> bool:
        """Return whether it is installed, so that drivers can use it."""
        return bool(self.jars)

    @property
    def bytes(self) -> int:
        """Return the size of its jars."""
        return sum(jar.bytes for jar in self.jars)

    @property
    def note(self) -> str:
        """Return what whoever uses it should know: it was not tested with this Spark; "" else."""
        if self.fault or not self.ready:
            return self.fault
        spark = version("pyspark")
        if self.declared == NOTHING:
            return f"It has no {FILE}: its formats and the Spark that it needs are not known."
        if self.declared.tested(spark):
            return ""
        tested = ", ".join(self.declared.tested_with) or "no version of it"
        return f"It was not tested with Spark {spark}, but with {tested}."

    @property
    def way_out(self) -> str:
        """Return the sentence that explains how to install it."""
        return connector_way_out(self.name)


def connectors() -> list[Connector]:
    """Return the connectors that are installed or that an application names, by name."""
    named = _named()
    return [
        Connector(
            name=name,
            folder=str(Path(settings.CONNECTORS_DIR) / name),
            jars=tuple(_jar(path) for path in jars_of(name)),
            applications=tuple(named.get(name, ())),
            declared=_declared(name)[0],
            fault=_declared(name)[1],
        )
        for name in sorted(ready_connectors() | set(named))
    ]


def declared_connectors() -> dict[str, Declared]:
    """Return what the installed connectors say of themselves, by name."""
    return {name: _declared(name)[0] for name in ready_connectors()}


def conf_of_connectors(names: tuple[str, ...]) -> dict[str, str]:
    """Return the configuration by which Spark takes in these connectors."""
    return conf_of(_declared(name)[0] for name in names)


def _declared(name: str) -> tuple[Declared, str]:
    """Return what a connector says of itself, and why that cannot be read.

    A folder of jars alone is described by the recipe of its name, where there is one.
    """
    for folder in (Path(settings.CONNECTORS_DIR), Path(settings.BASE_DIR) / "connectors"):
        if (text := read_file(folder / name / FILE, most=_LONGEST)) is not None:
            try:
                return read(text), ""
            except NotDeclared as error:
                return NOTHING, str(error)
    return NOTHING, ""


def ready_connectors() -> frozenset[str]:
    """Return the names of the connectors that are installed on this host."""
    folder = Path(settings.CONNECTORS_DIR)
    if not folder.is_dir():
        return frozenset()
    return frozenset(
        each.name
        for each in folder.iterdir()
        if not each.name.startswith(".") and any(each.glob("*.jar"))
    )


def jars_of(name: str) -> list[Path]:
    """Return a connector's jars by name; none where it is not installed."""
    if name not in ready_connectors():
        return []
    return sorted((Path(settings.CONNECTORS_DIR) / name).glob("*.jar"))


def _named() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    living = Application.objects.filter(archived_at=None).order_by("name")
    newest = newest_application_revisions(living.values_list("pk", flat=True))
    for application in living:
        revision = newest.get(application.pk)
        for name in (revision.spec.get("connectors") or ()) if revision else ():
            found.setdefault(str(name), []).append(application.name)
    return found


def _jar(path: Path) -> Jar:
    read = _JAR.fullmatch(path.name)
    size = path.stat().st_size
    if read is None:
        return Jar(path.name, path.name.removesuffix(".jar"), "", size)
    return Jar(path.name, read["artifact"], read["version"], size)
