"""Which areas run: `pytest --areas kafka,s3` runs theirs whole, `--promises` adds every promise.

`bootstrap/areas.toml` says which area runs a test. Tests of a promise carry the mark `promise`.
"""

import sys
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings

sys.path.append(str(Path(settings.BASE_DIR) / "bootstrap"))

from areas import LARGE, LIGHT, PROMISE, AreaTable

_TABLE = AreaTable.read()
#: The marks by which areas choose among the tests of a file.
MARKS = {area.mark for area in _TABLE.areas.values()}
#: Ten thousand tests have few files and marks.
_running = cache(_TABLE.running)


def add_options(parser: pytest.Parser) -> None:
    """Add `--areas` and `--promises`."""
    parser.addoption("--areas", default="", help="run the tests of these areas: kafka,s3")
    parser.addoption("--promises", action="store_true", help="run the tests marked promise")


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep what `--areas` and `--promises` ask for, and refuse a large test without an area."""
    homeless = sorted({item.nodeid for item in items if not area_of(item)})
    if homeless:
        raise pytest.UsageError(
            f"No area in bootstrap/areas.toml runs {', '.join(homeless)}: add its file to one."
        )
    names, promises = config.getoption("--areas"), config.getoption("--promises")
    if not names and not promises:
        return
    areas = {area.name for area in _TABLE.named([name for name in names.split(",") if name])}
    kept = [item for item in items if area_of(item) in areas or (promises and promised(item))]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


def area_of(item: pytest.Item) -> str:
    """Return the name of the area that runs a test, "" if none does."""
    marks = frozenset(mark.name for mark in item.iter_markers())
    return _running(item.nodeid.partition("::")[0], marks & (LARGE | MARKS))


def promised(item: pytest.Item) -> bool:
    """Return whether a large test shows what its area promises."""
    return item.get_closest_marker(PROMISE) is not None and area_of(item) != LIGHT
