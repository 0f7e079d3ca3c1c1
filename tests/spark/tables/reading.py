"""Read Delta and Iceberg tables in a process of its own, with the Spark that they are for."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queries.domain.definitions.declarations import conf_of, read
from queries.domain.sparks import Spark
from tests import pieces

_RECIPES = Path(__file__).resolve().parents[3] / "connectors"
#: What each connector needs in a session.
CONF = {
    name: conf_of([read((_RECIPES / name / "connector.toml").read_text())])
    for name in ("delta", "iceberg")
}
_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession

conf, texts, file = json.loads(sys.argv[1])
spark = SparkSession.builder.master("local[2]").config(map=conf).getOrCreate()
found = [[list(row) for row in spark.sql(text).collect()] for text in texts]
with open(file, "w") as out:
    json.dump(found, out)
"""


def selected(
    folder: Path, connector: str, version: Spark, conf: Mapping[str, str], *texts: str
) -> list[list[list[Any]]]:
    """Return the rows of each SQL text; the folder is for what passes between the processes."""
    spark, file = pieces.spark_folder(version), folder / "selected.json"
    conf = {
        **CONF[connector],
        **conf,
        "spark.jars": ",".join(pieces.connector_jars(connector, version)),
        "spark.ui.enabled": "false",
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps([conf, texts, str(file)])],
        env={
            "PATH": f"{pieces.java().home}/bin:/usr/bin:/bin",
            "JAVA_HOME": str(pieces.java().home),
            "PYTHONPATH": spark,
            "SPARK_HOME": f"{spark}/pyspark",
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: list[list[list[Any]]] = json.loads(file.read_text())
    return found
