"""A stage for each story."""

import pytest

from tests.scenarios.stage import Stage


@pytest.fixture
def stage(db: None) -> Stage:
    """An empty installation at three in the morning."""
    return Stage()
