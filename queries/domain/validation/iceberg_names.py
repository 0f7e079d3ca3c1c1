"""Names of Iceberg tables, `catalog.database.table`, and the folders of a Hadoop catalog's tables.

The configuration declares a catalog:

    spark.sql.catalog.lake = org.apache.iceberg.spark.SparkCatalog
    spark.sql.catalog.lake.type = hadoop
    spark.sql.catalog.lake.warehouse = /data/lake

Then table lake.flights.delays is in the folder /data/lake/flights/delays (Iceberg:
`HadoopCatalog`), so a table's folder follows from its name and the configuration.
"""

import re
from collections.abc import Mapping, Sequence

#: The option that names a table in a definition.
TABLE = "table"
CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
#: How to declare a catalog.
CATALOG = (
    "Set spark.sql.catalog.{name}=" + CATALOG_CLASS + ", spark.sql.catalog.{name}.type=hadoop and "
    "spark.sql.catalog.{name}.warehouse=FOLDER in the application's configuration."
)
_PREFIX = "spark.sql.catalog."
_NAME = re.compile(r"\w+(\.\w+){2,}")


class NotATable(Exception):
    """A name does not denote a table in a declared Hadoop catalog; `way_out` says what to do."""

    def __init__(self, message: str, way_out: str) -> None:
        super().__init__(message)
        self.way_out = way_out


def names_of(conf: Mapping[str, str]) -> list[str]:
    """Return the names of the catalogs that a configuration declares, of any class."""
    names = (key.removeprefix(_PREFIX) for key in conf if key.startswith(_PREFIX))
    return sorted(name for name in names if "." not in name)


def table_of(options: Mapping[str, str]) -> str:
    """Return the name of the Iceberg table in a definition's options; "" if there is none."""
    return next((value for key, value in options.items() if key.lower() == TABLE), "")


def table_folder(name: str, conf: Mapping[str, str]) -> str:
    """Return the folder of a table as a path or URL; raise `NotATable`."""
    if not _NAME.fullmatch(name):
        message = "is not the name of a table in a catalog."
        raise NotATable(message, 'Write "catalog.database.table", with letters, digits and _.')
    parts = name.split(".")
    if conf.get(f"{_PREFIX}{parts[0]}") != CATALOG_CLASS:
        message = f"is in the catalog {parts[0]}, which is not declared as an Iceberg catalog."
        raise NotATable(message, CATALOG.format(name=parts[0]))
    if not (folder := folder_of(parts, conf)):
        message = f"is in the catalog {parts[0]}, which is not a Hadoop catalog with a warehouse."
        raise NotATable(message, CATALOG.format(name=parts[0]))
    return folder


def folder_of(parts: Sequence[str], conf: Mapping[str, str]) -> str:
    """Return the folder of a name's parts; "" if they are not in a Hadoop catalog."""
    prefix = f"{_PREFIX}{parts[0]}"
    warehouse = conf.get(f"{prefix}.warehouse", "")
    if conf.get(f"{prefix}.type", "").lower() != "hadoop" or not warehouse:
        return ""
    return "/".join([warehouse.rstrip("/"), *parts[1:]])


def conf_keys(catalog: str) -> tuple[str, ...]:
    """Return the keys that decide where a catalog's tables are."""
    return tuple(f"{_PREFIX}{catalog}{end}" for end in ("", ".type", ".warehouse"))
