"""A start on logs with EMR's `s3://` names is rejected, because Spark would read the files again.

The logs are those of a real query that read and wrote files as `s3://`, as on EMR.
"""

import json
import re
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import json
import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from queries.runtime.checkpoints.s3_names import refuse_s3_names
from queries.runtime.failures.error_capture import StepFailed

home = Path(sys.argv[1])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for scheme in ("s3", "s3a"):  # two names of one bucket, as on EMR: here, of a local folder
    view = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
    builder = builder.config(f"spark.hadoop.fs.{scheme}.impl", view)
local = "org.apache.hadoop.fs.LocalFileSystem"
builder = builder.config("spark.hadoop.fs.viewfs.overload.scheme.target.file.impl", local)
for folder in ("in", "out"):
    target = f"file://{home}/{folder}"
    builder = builder.config(f"spark.hadoop.fs.viewfs.mounttable.lake.link./{folder}", target)
spark = builder.getOrCreate()


def run(checkpoint, path, out, **options):
    rows = spark.readStream.schema("n INT").options(**options).json(path)
    query = rows.writeStream.trigger(availableNow=True).format("json")
    query = query.option("checkpointLocation", str(home / checkpoint)).start(out)
    query.awaitTermination()
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def refusal(path, sink="noop", out="s3a://lake/out", **options):
    sources = [{"options": {"path": path, **options}}]
    spec = {"sources": sources, "sink": {"format": sink, "options": {"path": out}}}
    try:
        refuse_s3_names(spark, spec, f"file://{home}/emr")
    except StepFailed as error:
        return str(error)
    return ""


for number in range(12):
    (home / f"in/{number}.json").write_text(json.dumps({"n": number}))
found = {"first": run("emr", "s3://lake/in", "s3://lake/out", maxFilesPerTrigger=1)}
found |= {
    "emr": refusal("s3a://lake/in"),
    "elsewhere": refusal("s3a://pond/in"),
    "legacy": refusal("s3://lake/in"),
    "sink": refusal("/in", sink="json"),
    "new_sink": refusal("/in", sink="json", out="s3a://lake/in"),
}
shutil.copytree(home / "emr", home / "again")
try:
    run("again", "s3a://lake/in", str(home / "again-out"))
except Exception as error:
    found["without_wildcard"] = str(error)
found["with_wildcard"] = run("again", "s3a://lake/in/*.json", str(home / "again-out"))
print(json.dumps(found))
spark.stop()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what a driver finds, and what Spark itself does, on the log of a file source."""
    home = tmp_path_factory.mktemp("s3-names")
    for folder in ("in", "out"):
        (home / folder).mkdir()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(home)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_a_sources_log_with_former_names_is_rejected_with_a_way_out(found: dict[str, Any]) -> None:
    assert found["first"] == 12
    assert re.search(
        r"source: the log file:\S+/emr/sources/0 contains s3://lake/in/\d+\.json, a name that EMR "
        r"wrote; Spark would read it again, as s3a://\. Reset the query; first move files",
        found["emr"],
    )


def test_a_sinks_log_with_former_names_is_rejected_with_a_way_out(found: dict[str, Any]) -> None:
    assert re.search(
        r"sink: the log s3a://lake/out/_spark_metadata contains s3://lake/out/part-\S+, a name "
        r"that EMR wrote; .* Clone the query with another folder for its sink",
        found["sink"],
    )
    assert found["new_sink"] == ""


def test_files_of_another_place_are_not_rejected(found: dict[str, Any]) -> None:
    assert (found["elsewhere"], found["legacy"]) == ("", "")


def test_spark_itself_reads_the_files_again_or_fails(found: dict[str, Any]) -> None:
    assert found["with_wildcard"] == 12
    assert "Wrong FS: s3://lake/in/" in found["without_wildcard"]
