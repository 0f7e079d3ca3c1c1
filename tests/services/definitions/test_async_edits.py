"""An edit that switches async progress tracking off is refused where it would kill the query."""

from pathlib import Path
from typing import Any

import pytest

from queries.domain.errors import Invalid, NotAllowed
from queries.services.definitions import catalog
from queries.services.triggers import request_async_off
from tests.scenarios.async_logs import AsyncQuery
from tests.scenarios.stage import Stage

OFF: list[dict[str, Any]] = [
    {"format": "noop"},
    {"format": "noop", "options": {"asyncProgressTrackingEnabled": "false"}},
]


@pytest.fixture
def flights(stage: Stage, tmp_path: Path) -> AsyncQuery:
    return AsyncQuery(stage, tmp_path)


def edit(flights: AsyncQuery, stage: Stage, **changes: Any) -> int:
    revision = catalog.revise_query(
        query=flights.query,
        spec={**flights.spec(), **changes},
        expected_revision=None,
        actor="aude",
        now=stage.now,
    )
    return revision.number


@pytest.mark.parametrize("sink", OFF)
def test_it_is_refused_on_a_log_with_a_gap_naming_it_and_the_safe_way(
    flights: AsyncQuery, stage: Stage, sink: dict[str, Any]
) -> None:
    flights.log(59, 74, 86, 98, 112)
    with pytest.raises(Invalid) as refused:
        edit(flights, stage, sink=sink)
    [problem] = refused.value.problems
    assert problem.field == "sink.options.asyncProgressTrackingEnabled"
    assert "contains batch 112 and, before it, batch 98, but not batch 111" in problem.message
    assert "/api/v1/queries/flights/async-off/" in problem.way_out
    with pytest.raises(Invalid):  # looking at the change says so too
        catalog.plan_query(
            name="flights", spec={**flights.spec(), "sink": sink}, query=flights.query
        )


@pytest.mark.parametrize("sink", OFF)
@pytest.mark.parametrize("log", [(), (0,), (111, 112)])
def test_it_is_let_through_where_the_log_is_whole(
    flights: AsyncQuery, stage: Stage, sink: dict[str, Any], log: tuple[int, ...]
) -> None:
    flights.log(*log)
    assert edit(flights, stage, sink=sink) == 2


def test_other_edits_are_let_through_on_a_log_with_a_gap(flights: AsyncQuery, stage: Stage) -> None:
    flights.log(98, 112)
    assert edit(flights, stage, description="with a gap") == 2


def test_a_query_that_has_it_off_already_can_be_edited(
    flights: AsyncQuery, stage: Stage, tmp_path: Path
) -> None:
    dead = AsyncQuery(stage, tmp_path, "dead", sink={"format": "noop"})
    dead.log(98, 112)
    assert edit(dead, stage, description="died of it") == 2


def test_a_checkpoint_that_cannot_be_read_from_here_refuses_nothing(
    flights: AsyncQuery, stage: Stage
) -> None:
    flights.query.checkpoints.update(location="s3a://bucket/flights")
    assert edit(flights, stage, sink=OFF[0]) == 2


def test_a_start_that_would_die_of_a_gap_that_came_after_the_edit_is_refused(
    flights: AsyncQuery, stage: Stage
) -> None:
    flights.log(111, 112)
    stage.start("flights")
    stage.ready("flights")
    flights.commit()
    edit(flights, stage, sink=OFF[0])  # whole now
    flights.log(120)  # and the run, still on revision 1, goes on with gaps
    with pytest.raises(NotAllowed, match="but not batch 119") as refused:
        stage.restart("flights")
    assert "async-off" in refused.value.way_out
    assert stage.run("flights").revision.number == 1
    stage.stop("flights")  # a stop is nobody's to refuse
    row = request_async_off(query=stage.row("flights"), actor="aude", now=stage.now)
    assert row.arguments["missing_batch"] == 119
