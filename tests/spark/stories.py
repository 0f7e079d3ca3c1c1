"""Stories: programs with a Spark of their own that tell what they saw as a line of JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def told(story: ModuleType, *arguments: str, folder: Path, limit_s: float = 300) -> Any:
    """Run a story in a folder, without our packages on its path, and return what it tells."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(Path(str(story.__file__))), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit_s,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-4000:]
    return json.loads(lines[-1])
