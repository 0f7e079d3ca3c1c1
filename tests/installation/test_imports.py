"""What a process does not need, it does not import (docs/decisions/0036)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
#: Libraries that only the function that uses them imports.
WHEN_USED = {"apprise", "numpy", "pandas", "pyspark", "tsdownsample"}
PAGES = {"installation.urls", "queries.api", "queries.views", "drf_spectacular.openapi"}
TABLES = {"django.apps.registry", "queries.models", "listeners.models"}
#: The program -> what it imports before it waits, what it must not have.
PROCESSES = {
    "up, once it runs": ("import installation.keeper", {*WHEN_USED, *PAGES, *TABLES, "celery"}),
    "ingester": (
        "import django; django.setup(); import listeners.management.commands.ingest_events",
        {*WHEN_USED, *PAGES, "sqlglot", "confluent_kafka"},
    ),
    "watcher": (
        "import django; django.setup(); import queries.management.commands.watch",
        {*WHEN_USED, *PAGES, "sqlglot", "confluent_kafka"},
    ),
    "worker": (
        "import django; django.setup(); import controlplane.celery, queries.tasks, listeners.ticks",
        {*WHEN_USED, *PAGES},
    ),
    "web": (
        "import installation.asgi; from django.urls import get_resolver; "
        "get_resolver().url_patterns",
        {*WHEN_USED, "jwt"},
    ),
    "shim": (
        "import queries.launchers.process.shim",
        {*WHEN_USED, *PAGES, *TABLES, "django", "pydantic"},
    ),
    "a driver, before it has started its JVM": (
        "import queries.runtime.entry",
        {*WHEN_USED, *PAGES, *TABLES, "django", "pydantic", "py4j", "redis", "listeners"},
    ),
    "the Spark UI server's listener": (
        "import runpy; runpy.run_path('installation/spark_ui/on_demand.py')",
        {*WHEN_USED, *PAGES, *TABLES, "django", "installation"},
    ),
}


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_does_not_import_what_it_does_not_need(process: str, tmp_path: Path) -> None:
    imports, unneeded = PROCESSES[process]
    code = f"{imports}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=REPOSITORY,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "HEADGATE_HOME": str(tmp_path),
            "SECRET_KEY": "of a test",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert unneeded & set(done.stdout.split()) == set()
