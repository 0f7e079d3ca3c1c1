"""The driver lists and reads logs through Hadoop, here with its local file system."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoints.forms import write_checkpoint

pytestmark = pytest.mark.spark

PROGRAM = """
import json
import sys

from pyspark.sql import SparkSession

from queries.runtime.checkpoints.logs import CheckpointReader

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
logs = CheckpointReader(sys.argv[1], spark)
offsets = logs.listed("offsets")
found = {
    "begun": list(offsets),
    "written_ms": offsets[2].getModificationTime(),
    "text": logs.text_of("offsets", offsets[2]),
    "nothing": logs.listed("elsewhere"),
}
spark._jvm.java.io.File(sys.argv[1].removeprefix("file://") + "/offsets/0").delete()
found["purged"] = logs.text_of("offsets", offsets[0])
print(json.dumps(found))
spark.stop()
"""


def test_entries_are_listed_in_order_with_their_times_and_what_is_gone_is_not_an_error(
    tmp_path: Path,
) -> None:
    root = write_checkpoint(tmp_path / "checkpoint", batches=range(12))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, root.as_uri()],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["begun"] == list(range(12))
    entry = root / "offsets/2"
    assert found["written_ms"] // 1000 == int(entry.stat().st_mtime)
    assert found["text"] == entry.read_text()
    assert found["nothing"] == {}
    assert found["purged"] is None
