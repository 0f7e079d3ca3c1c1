"""What a nudge or a tick names exists: otherwise, it is only logged, and nothing is looked at."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.utils.module_loading import import_string

import queries.tasks  # noqa: F401 - registers its tasks
from controlplane.celery import app
from headgate_ground.packages import SERVER


@pytest.fixture(scope="module")
def named() -> set[str]:
    """Return the dotted names of tasks and ticks in the program's texts."""
    root = Path(settings.BASE_DIR)
    sources = [path for package in SERVER for path in (root / package).rglob("*.py")]
    pattern = r"[\"']((?:queries|listeners)\.(?:tasks|ticks)\.\w+)[\"']"
    return {name for path in sources for name in re.findall(pattern, path.read_text())}


def test_every_task_that_the_program_names_exists(named: set[str]) -> None:
    tasks = {name for name in named if ".tasks." in name}
    assert len(tasks) > 5
    assert tasks - app.tasks.keys() == set()


def test_every_tick_that_the_program_names_exists(named: set[str]) -> None:
    ticks = {name for name in named if ".ticks." in name}
    assert len(ticks) > 20
    assert all(callable(import_string(name)) for name in ticks)
