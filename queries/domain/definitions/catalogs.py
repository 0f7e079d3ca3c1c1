"""Catalogs that a definition may declare: folders, and no services.

Spark connects to a catalog of another type (REST, Hive, JDBC, Glue, Nessie, …) when the query
starts, at an address of the author's choice. Until an admin can allow catalogs, a definition can
declare only Iceberg's Hadoop catalogs, whose warehouse is a folder in the data roots. An admin's
connector may declare others (`connector.toml`).

Sources: Iceberg's CatalogUtil and CatalogProperties (`type`, `catalog-impl`, `uri`); their names
ignore case, because Spark passes them as a CaseInsensitiveStringMap. A catalog's name contains no
dot (Spark: Catalogs.load).
"""

import re
from collections.abc import Mapping

from queries.domain.errors import Problem

PREFIX = "spark.sql.catalog."
#: The only type whose tables are folders that Headgate can check.
HADOOP = "hadoop"
#: Iceberg's catalogs, which connect to a Hive metastore if they have no type.
_ICEBERG = re.compile(r"org\.apache\.iceberg\.spark\.Spark(Session)?Catalog")
_PROPERTY = re.compile(
    r"spark\.sql\.catalog\.(?P<name>[^.]+)\.(?P<property>type|catalog-impl|uri)", re.IGNORECASE
)
_WHY = (
    "would connect to a catalog service. Only Iceberg's Hadoop catalogs, which are folders, can be "
    "declared here."
)


def service_problem(key: str, value: str) -> Problem | None:
    """Return why a setting of a catalog is rejected: it names a service; None if it does not."""
    match = _PROPERTY.fullmatch(key)
    if match is None or (match["property"].lower() == "type" and value.lower() == HADOOP):
        return None
    return Problem(f"conf.{key}", value[:200], _WHY, _way_out(match["name"]))


def untyped(conf: Mapping[str, str], whole: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each Iceberg catalog that `conf` declares and that has no type.

    `whole` is the configuration in effect: the declaration and the type can be in different parts
    of it.
    """
    typed = {key.lower() for key in whole}
    return [
        Problem(f"conf.{key}", value, f"has no type: it {_WHY}", _way_out(name))
        for key, value in conf.items()
        if key.startswith(PREFIX)
        and _ICEBERG.fullmatch(value)
        and f"{PREFIX}{(name := key.removeprefix(PREFIX)).lower()}.type" not in typed
    ]


def _way_out(name: str) -> str:
    return (
        f"Set {PREFIX}{name}.type=hadoop and {PREFIX}{name}.warehouse=FOLDER, and remove the "
        "address."
    )
