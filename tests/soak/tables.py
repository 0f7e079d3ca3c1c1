"""Tables of Delta or Iceberg in place of files, on the newest Spark that each has a release for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queries.domain.sparks import Spark
from tests import pieces
from tests.spark.tables.reading import selected

SPARKS: Mapping[str, Spark] = {"delta": "4.2", "iceberg": "4.1"}
_CATALOG = "lake"


def missing(kind: str) -> str:
    """Return why a soak with these tables is impossible, "" where it is possible."""
    spark = SPARKS[kind]
    return pieces.missing_connector(kind, spark) or pieces.missing_connector("kafka", spark)


def equip(form: dict[str, Any], kind: str, out: str) -> None:
    """Give an application the format's Spark, its connector, and a catalog in the folder `out`."""
    form["spark"] = SPARKS[kind]
    form["connectors"] = [*form["connectors"], kind]
    form["conf"] |= _catalog(kind, out)


def sink(kind: str, out: str, name: str) -> dict[str, Any]:
    """Return the sink that appends to a query's table."""
    options = {"table": _table(name)} if kind == "iceberg" else {"path": f"{out}/{name}"}
    return {"format": kind, "output_mode": "append", "options": options}


def written(kind: str, folder: Path, out: str, name: str) -> list[tuple[str, str]]:
    """Return the keys and values in a query's table; the folder is for intermediate files."""
    table = _table(name) if kind == "iceberg" else f"delta.`{out}/{name}`"
    text = f"SELECT key, value FROM {table}"
    [rows] = selected(folder, kind, SPARKS[kind], _catalog(kind, out), text)
    return [(key, value) for key, value in rows]


def _table(name: str) -> str:
    return f"{_CATALOG}.soak.{name.replace('-', '_')}"


def _catalog(kind: str, out: str) -> dict[str, str]:
    if kind != "iceberg":
        return {}
    catalog = f"spark.sql.catalog.{_CATALOG}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": f"{out}/warehouse",
    }
