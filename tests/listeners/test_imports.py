"""What runs inside a driver needs nothing of the web."""

import subprocess
import sys
from pathlib import Path

BLOCKED = """
import sys
for name in ("django", "celery", "controlplane"):
    sys.modules[name] = None
import listeners.spark.telemetry
"""


def test_telemetry_can_be_imported_where_there_is_no_django() -> None:
    repository = Path(__file__).resolve().parents[2]
    told = subprocess.run(
        [sys.executable, "-c", BLOCKED], cwd=repository, capture_output=True, text=True, timeout=120
    )
    assert told.returncode == 0, told.stderr
