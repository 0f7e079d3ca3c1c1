"""A connector's own description in `connector.toml`: formats, options, extensions, versions.

The file is stored next to the connector's jars by whoever runs the host. Definitions may use the
formats that it lists in the same way as Spark's own.
"""

import tomllib
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

FILE = "connector.toml"
_EXTENSIONS = "spark.sql.extensions"


class Declared(BaseModel):
    """A connector as described by its own file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str = ""
    sources: tuple[str, ...] = ()  # formats of spark.readStream
    tables: tuple[str, ...] = ()  # formats of spark.read
    sinks: tuple[str, ...] = ()  # formats of writeStream
    options: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # by format
    extensions: tuple[str, ...] = ()  # classes for spark.sql.extensions
    catalogs: dict[str, str] = Field(default_factory=dict)  # name -> class
    conf: dict[str, str] = Field(default_factory=dict)  # defaults that an application can change
    # Maven coordinates of its jars; a recipe without them is only for other versions of Spark.
    packages: tuple[str, ...] = ()
    tested_with: tuple[str, ...] = ()  # versions of Spark: "4.3"
    # Of a recipe: Maven properties for other versions of Spark than Headgate's own, by version.
    versions: dict[str, dict[str, str]] = Field(default_factory=dict)

    def tested(self, spark: str) -> bool:
        """Return whether it was tested with a Spark version; "4.3" means any 4.3.x."""
        return any(
            spark == version or spark.startswith(f"{version}.") for version in self.tested_with
        )


class NotDeclared(Exception):
    """A `connector.toml` cannot be read; the message says why."""


def read(text: str) -> Declared:
    """Parse a `connector.toml`; raise `NotDeclared` if it is malformed."""
    try:
        return Declared.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise NotDeclared(f"{FILE} is not TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise NotDeclared(f"{FILE}: {where}: {first['msg']}.") from error


def conf_of(connectors: Iterable[Declared]) -> dict[str, str]:
    """Return the Spark configuration of the connectors: extensions, catalogs and defaults."""
    conf: dict[str, str] = {}
    extensions: list[str] = []
    for connector in connectors:
        extensions += [name for name in connector.extensions if name not in extensions]
        conf |= connector.conf
        conf |= {f"spark.sql.catalog.{name}": kind for name, kind in connector.catalogs.items()}
    return {**conf, _EXTENSIONS: ",".join(extensions)} if extensions else conf


def formats_of(connectors: Mapping[str, Declared], kind: str) -> dict[str, str]:
    """Return format -> connector for one kind ("sources", "tables", "sinks"); the first wins."""
    owners: dict[str, str] = {}
    for name, connector in sorted(connectors.items()):
        for name_of_format in getattr(connector, kind):
            owners.setdefault(name_of_format, name)
    return owners
