"""Whatever touches the database holds on a real PostgreSQL too: the same tests, once more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
#: The folders whose tests write rows.
FOLDERS = ("services", "listeners", "scenarios", "api", "web")
#: Of them what asks for roles, words and settings, and whether the API keeps the form of its
#: document: the pass on SQLite answers that for both databases.
LEFT_OUT = (
    "api/test_conformity.py",
    "api/test_schema.py",
    "web/test_bars.py",
    "web/test_roles.py",
    "web/test_setup_settings.py",
    "web/test_wording.py",
)


@pytest.mark.postgres
@pytest.mark.timeout(1200)
def test_everything_that_writes_rows_works_on_postgresql(postgres_server: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "2"]
        + ["-m", "not (postgres or spark or browser or faults)"]
        + [f"tests/{folder}" for folder in FOLDERS]
        + [f"--ignore=tests/{file}" for file in LEFT_OUT],
        cwd=REPOSITORY,
        env=os.environ | {"DATABASE_URL": postgres_server, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
