"""List, as a pytest plugin, the area that runs each collected test, and whether it is a promise."""

import json
import os
from pathlib import Path

import pytest

from tests import conftest_areas

#: Variable with the path of the file for the list: {test id: [area, promise]}.
LISTED = "HEADGATE_LISTED_AREAS"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the list."""
    listed = {
        item.nodeid: (conftest_areas.area_of(item), conftest_areas.promised(item))
        for item in session.items
    }
    Path(os.environ[LISTED]).write_text(json.dumps(listed))
