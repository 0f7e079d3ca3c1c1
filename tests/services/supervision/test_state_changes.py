"""A revision that silently changes the meaning of state starts once a user has accepted it."""

from typing import Any

import pytest

from queries.domain.states import Desired
from queries.models.definitions import Query
from queries.selectors.probes import change_of, unaccepted_change
from queries.services.supervision import operations
from queries.services.supervision.start_checks import StateChanges
from tests.scenarios.stage import DIVIDE, Stage

pytestmark = pytest.mark.django_db

BY_KEY = "SELECT value % 3 AS k, count(*) AS n FROM flights GROUP BY value % 3"
SWAPPED = "SELECT value % 5 AS k, count(*) AS n FROM flights GROUP BY value % 5"
UPDATE = {"format": "noop", "output_mode": "update"}


@pytest.fixture
def counting(stage: Stage) -> Stage:
    """A query that has counted by one key, was stopped, and now counts by another."""
    stage.query("delays", sql=BY_KEY, sink=UPDATE)
    stage.up("delays")
    stage.launcher.obliging = True
    stage.stop("delays")
    stage.revise("delays", sql=SWAPPED)
    return stage


def _row(stage: Stage) -> Query:
    return stage.row("delays")


def test_a_swapped_key_is_asked_about_before_its_first_start(counting: Stage) -> None:
    with pytest.raises(StateChanges, match=r"grouping key: .*3.* → .*5") as raised:
        counting.start("delays")
    assert "accept_state_change" in raised.value.way_out
    assert _row(counting).desired == Desired.STOPPED


def test_it_is_accepted_once_for_this_checkpoint_and_kept_with_its_name(counting: Stage) -> None:
    operations.request_start(
        query=_row(counting), actor="olga", now=counting.now, accept_state_change=True
    )
    revision = _row(counting).revisions.latest("number")
    assert revision.accepted_by == "olga"
    assert unaccepted_change(_row(counting)) is None
    counting.settle()
    counting.stop("delays")
    counting.start("delays")  # the second start of the same revision asks nothing
    assert _row(counting).desired == Desired.RUNNING


def test_supervision_restarts_without_asking(stage: Stage) -> None:
    stage.query("delays", sql=BY_KEY, sink=UPDATE)
    stage.up("delays")
    stage.revise("delays", sql=SWAPPED)  # saved, and not started
    stage.fail("delays", DIVIDE)
    stage.wait(600)
    assert _row(stage).desired == Desired.RUNNING
    assert stage.run("delays").revision.number == 1
    with pytest.raises(StateChanges):
        stage.restart("delays")


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"sql": BY_KEY.replace("GROUP BY value % 3", "GROUP BY value % 3, value")}, True),
        ({"trigger": {"kind": "processing_time", "interval": "9 seconds"}}, False),
        ({"sql": BY_KEY.replace("AS n", "AS rows")}, False),
    ],
)
def test_what_spark_refuses_itself_or_what_changes_no_state_is_not_asked_about(
    stage: Stage, changes: dict[str, Any], refused: bool
) -> None:
    stage.query("delays", sql=BY_KEY, sink=UPDATE)
    stage.up("delays")
    stage.launcher.obliging = True
    stage.stop("delays")
    stage.revise("delays", **changes)
    newest = _row(stage).revisions.latest("number")
    found = change_of(_row(stage), newest.spec, newest.state, newest.state_by)
    assert bool(found and found.refused) is refused
    assert not (found and found.silent)
    stage.start("delays")


def test_what_spark_says_of_both_plans_decides_where_it_has_said_it(counting: Stage) -> None:
    """Texts that differ and mean the same: only Spark's plans tell."""
    first, second = _row(counting).revisions.order_by("number")
    kept = {"operators": [{"kind": "aggregation", "keys": ["k"]}], "output_mode": "update"}
    type(first).objects.filter(query=first.query).update(state=kept, state_by="4.3.0")
    assert unaccepted_change(_row(counting)) is None
    type(first).objects.filter(pk=second.pk).update(state_by="4.4.0")  # other words for plans
    assert unaccepted_change(_row(counting)) is not None


def test_a_new_checkpoint_has_no_state_to_get_wrong(counting: Stage) -> None:
    query = _row(counting)
    query.checkpoints.update(retired_at=counting.now)
    query.checkpoints.create(location="file:///checkpoints/other", created_at=counting.now)
    counting.start("delays")
