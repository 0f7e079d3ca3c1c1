"""A reset begins where the newest commit has read up to, not where a failed batch was to."""

from pathlib import Path

import pytest

from queries.checkpoints.logs import CheckpointLogs
from queries.models.definitions import Query
from queries.services.checkpoints.source_starts import WantedStart, starts
from tests.conftest_brokers import commit
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

TO_50 = WantedStart("offsets", offsets={"flights": {"0": 50}})


@pytest.fixture
def query(stage: Stage) -> Query:
    """A query whose code knows its broker: nobody is asked."""
    return stage.query("delays", kind="python", function="m:f", sources=[])


def test_partitions_that_stay_pass_over_no_record_of_a_batch_that_failed(
    query: Query, tmp_path: Path
) -> None:
    commit(tmp_path, 0, {0: 100, 1: 100})
    commit(tmp_path, 1, {0: 200, 1: 200}, committed=False)
    found = starts(query, CheckpointLogs(tmp_path), TO_50)
    assert found.starts[0].offset == {"flights": {"0": 50, "1": 100}}
    first, second = found.moved
    assert (first.before, first.after, first.repeated, first.skipped) == (100, 50, 50, 0)
    assert (second.before, second.after, second.repeated, second.skipped) == (100, 100, 0, 0)


def test_where_no_batch_has_committed_they_stay_where_the_query_began(
    query: Query, tmp_path: Path
) -> None:
    commit(tmp_path, 0, {0: 200, 1: 200}, committed=False)
    place = tmp_path / "sources" / "0"
    place.mkdir(parents=True)
    (place / "0").write_text('\0v1\n{"flights":{"0":10,"1":20}}')
    found = starts(query, CheckpointLogs(tmp_path), TO_50)
    assert found.starts[0].offset == {"flights": {"0": 50, "1": 20}}
    assert [(one.repeated, one.skipped) for one in found.moved] == [(0, 40), (0, 0)]
