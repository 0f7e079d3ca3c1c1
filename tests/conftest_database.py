"""On which database the tests run: `pytest --database postgresql` starts a cluster of its own.

By itself each test runs on SQLite. With `--database postgresql` those that use the database run
on a real PostgreSQL, each with `[postgresql]` in its name; the others have nothing to say there
and are left out.

`make test` has those run there that are marked `sql`: all that write rows by services and
listeners, and those that run SQL which views, selectors and models build. A mark names the
functions that do, and its test fails where it has not come through one of them.
`tests/checks/test_sql_marks.py` asks for the mark of each.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests import pieces

#: What asks for roles, words and settings, or whether the API keeps the form of its document:
#: the pass on SQLite answers that for both databases.
ANSWERED_ON_SQLITE = (
    "api/test_conformity.py",
    "api/test_schema.py",
    "web/supervision/test_batch_bars.py",
    "security/rights/test_rights.py",
    "web/console/test_setup_settings.py",
    "web/console/test_wording.py",
)
#: Where all tests are marked `sql`.
SQL_ROOMS = ("services", "controlplane", "listeners", "runtime/test_start_deadline.py")
_TESTS = Path(__file__).resolve().parent
_opened = ExitStack()


def add_option(parser: pytest.Parser) -> None:
    """Add `--database`."""
    parser.addoption(
        "--database",
        choices=("sqlite", "postgresql"),
        default="sqlite",
        help="run the tests that use the database on this one",
    )


def use_a_worker(config: pytest.Config) -> None:
    """Have another process run the tests: this one read its settings before it was told."""
    if _is_asked_for(config) and not config.option.numprocesses:
        config.option.numprocesses = 1


def start(config: pytest.Config) -> None:
    """Start the PostgreSQL that was asked for, and point this run's workers to it.

    Where there is none the run ends with the way to get one: in CI as a failure.
    """
    if not _is_asked_for(config):
        return
    if reason := pieces.missing_postgres():
        pytest.exit(f"postgresql: {reason}", returncode=1 if os.environ.get("CI") else 0)
    os.environ["DATABASE_URL"] = _opened.enter_context(pieces.postgres_server())


def stop() -> None:
    """Stop the PostgreSQL of this run."""
    _opened.close()


def mark(item: pytest.Item) -> None:
    """Mark a test of a room of services as one of SQL."""
    if item.path.relative_to(_TESTS).as_posix().startswith((*SQL_ROOMS, "test_database.py")):
        item.add_marker(pytest.mark.sql)


def come_through(item: pytest.Item) -> Iterator[None]:
    """Have a test fail that did not come through each function whose SQL it is marked to run."""
    named = {name for mark in item.iter_markers("sql") for name in mark.args}
    called: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            called.add(f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}")

    if named:
        sys.setprofile(note)
        threading.setprofile(note)
    try:
        yield
    finally:
        if named:
            sys.setprofile(None)
            threading.setprofile(None)
    assert named <= called, f"marked, but not run: {sorted(named - called)}"


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what says nothing about PostgreSQL."""
    if config.getoption("--database") != "postgresql":
        return
    said = [item for item in items if _asks_the_database(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in said])
    items[:] = said


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Name the database in the names of the tests that run on PostgreSQL."""
    if metafunc.config.getoption("--database") == "postgresql":
        metafunc.parametrize("database", ["postgresql"], indirect=True, scope="session")


def _is_asked_for(config: pytest.Config) -> bool:
    """Tell whether to start one: a worker inherits its address with the environment."""
    return config.getoption("--database") == "postgresql" and not hasattr(config, "workerinput")


def _asks_the_database(item: pytest.Item) -> bool:
    if str(item.path.relative_to(_TESTS)) in ANSWERED_ON_SQLITE:
        return False
    fixtures = set(getattr(item, "fixturenames", ()))
    if "full_database" in fixtures:
        return False  # the disk of a PostgreSQL cannot be filled by a test
    return bool(
        item.get_closest_marker("django_db")
        or fixtures & {"db", "transactional_db", "django_db_reset_sequences", "live_server"}
    )
