"""A set that changes what state means starts queries only once that is accepted with it."""

from typing import Any

import pytest

from queries.domain.deploys.request import DeployState, parse_deploy
from queries.domain.manifests.sets import parse_set
from queries.domain.states import Desired
from queries.models.deploys import Deploy
from queries.selectors.probes import unaccepted_change
from queries.services.deploys.requesting import request_deploy
from queries.services.manifests.applying import apply_set
from queries.services.procedures.engine import due_operations
from queries.services.supervision.start_checks import StateChanges
from tests.scenarios.deploys.way import Way, ada
from tests.scenarios.stage import DIVIDE, Stage
from tests.services.bulk import advance_many

pytestmark = pytest.mark.django_db

BY_KEY = "SELECT value % 3 AS k, count(*) AS n FROM flights GROUP BY value % 3"


@pytest.fixture
def way(stage: Stage) -> Way:
    """Return the way of a query that counts by one key."""
    way = Way(stage)
    stage.query("delays", sql=BY_KEY, sink={"format": "noop", "output_mode": "update"})
    stage.up("delays")
    return way


def swapped(way: Way, **more: Any) -> dict[str, Any]:
    """Return a set in which the query counts by another key, and runs."""
    manifest = way.manifest("delays", sql=BY_KEY.replace("3", "5")) | {"desired": "RUNNING"}
    return {"owner": "repo", "manifests": [{"path": "delays.yaml", "manifest": manifest}], **more}


def applied(way: Way, raw: dict[str, Any]) -> None:
    apply_set(parse_set(raw), user=ada(), actor="ada", via="rest", now=way.stage.now)


def deployed(way: Way, raw: dict[str, Any]) -> Deploy:
    form = parse_deploy({"apply": raw})
    way.row = request_deploy(form=form, user=ada(), actor="ada", now=way.stage.now)
    return way.work()


@pytest.fixture
def stopped(way: Way) -> Way:
    """Stop that query: an apply starts it, and restarts nothing that runs."""
    way.stage.launcher.obliging = True
    way.stage.stop("delays")
    return way


def test_an_apply_is_refused_whole_and_names_what_accepts_it(stopped: Way) -> None:
    way = stopped
    with pytest.raises(StateChanges, match="delays: grouping key") as refused:
        applied(way, swapped(way))
    assert "accept_state_change" in refused.value.way_out
    assert "--accept-state-change" in refused.value.way_out
    assert way.stage.row("delays").revisions.count() == 1


def test_an_apply_that_accepts_it_keeps_who_did_and_starts_the_query(stopped: Way) -> None:
    stage = stopped.stage
    applied(stopped, swapped(stopped, accept_state_change=True))
    for operation in due_operations(now=stage.now):
        advance_many(operation, now=stage.now)
    stage.look()
    row = stage.row("delays")
    assert (row.desired, row.revisions.latest("number").accepted_by) == (Desired.RUNNING, "ada")
    assert unaccepted_change(row) is None
    assert stage.run("delays").revision.number == 2


def test_a_deploy_is_refused_at_once_and_changes_nothing(way: Way) -> None:
    with pytest.raises(StateChanges, match="delays: grouping key"):
        deployed(way, swapped(way))
    assert not Deploy.objects.exists()
    assert way.stage.row("delays").revisions.count() == 1


def test_a_deploy_that_accepts_it_runs_the_change_and_supervision_never_asks(way: Way) -> None:
    deployed(way, swapped(way, accept_state_change=True))
    assert way.came_up("delays").state == DeployState.SUCCEEDED
    stage = way.stage
    assert stage.run("delays").revision.number == 2
    assert stage.row("delays").revisions.latest("number").accepted_by == "ada"
    stage.fail("delays", DIVIDE)
    way.work(minutes=10)
    assert stage.row("delays").desired == Desired.RUNNING
    assert stage.run("delays").revision.number == 2
