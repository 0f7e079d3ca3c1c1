"""The verbs against rows: many at once, joined, superseded, archived."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from django.db import connection

from queries.domain.errors import NotAllowed
from queries.domain.states import GroupStatus, OperationOutcome, Reason, StopMode
from queries.models.definitions import Checkpoint, Query
from queries.models.history import FailureGroup, Operation, Transition
from queries.services import failures
from queries.services.supervision import application_operations, operations
from tests.scenarios.stage import Stage

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)


@pytest.mark.django_db(transaction=True)
def test_of_twenty_starts_at_once_all_return_one_operation() -> None:
    query = Stage().query("delays")

    def click(_: int) -> str:
        try:
            found = Query.objects.get(pk=query.pk)
            return str(operations.request_start(query=found, actor="olga", now=NOW).uuid)
        finally:
            connection.close()

    with ThreadPoolExecutor(20) as pool:
        uuids = set(pool.map(click, range(20)))
    assert len(uuids) == 1
    assert Operation.objects.count() == 1
    assert Query.objects.get().generation == 1


def test_a_stop_supersedes_the_start_before_it(stage: Stage) -> None:
    query = stage.query("delays")
    start = operations.request_start(query=query, actor="olga", now=NOW)
    operations.request_stop(query=query, mode=StopMode.NOW, actor="pat", now=NOW)
    start.refresh_from_db()
    assert (start.outcome, start.detail.text) == (OperationOutcome.SUPERSEDED, "stop by pat")


def test_each_click_leaves_who_asked_for_what(stage: Stage) -> None:
    query = stage.query("delays")
    operations.request_start(query=query, actor="olga", now=NOW)
    row = Transition.objects.get(subject="desired")
    assert (row.before, row.after, row.actor, row.reason) == (
        "STOPPED",
        "RUNNING",
        "olga",
        Reason.ASKED_START,
    )


def test_a_running_query_is_not_deleted(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    with pytest.raises(NotAllowed, match="Stop it first"):
        operations.archive_query(query=stage.row("delays"), actor="ada", now=NOW)


def test_a_deleted_query_frees_its_name_and_its_checkpoint(stage: Stage) -> None:
    query = stage.query("delays")
    operations.archive_query(query=query, actor="ada", now=NOW)
    again = stage.query("delays", "delays")
    assert again.pk != query.pk
    assert Checkpoint.objects.filter(retired_at=None).count() == 1
    assert Query.objects.filter(name="delays").count() == 2


def test_an_application_with_queries_is_not_deleted(stage: Stage) -> None:
    stage.query("delays")
    application = stage.row("delays").application
    with pytest.raises(NotAllowed, match="still contains delays"):
        application_operations.archive_application(application=application, actor="ada", now=NOW)


def test_an_application_restart_joins_the_one_under_way(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    application = stage.row("delays").application
    first = application_operations.request_application_restart(
        application=application, actor="a", now=NOW
    )
    second = application_operations.request_application_restart(
        application=application, actor="b", now=NOW
    )
    assert first.pk == second.pk


def test_a_restart_of_a_newer_revision_does_not_join_one_that_is_under_way(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    first = operations.request_restart(query=stage.row("delays"), actor="a", now=NOW)
    stage.revise("delays", sql="SELECT value FROM flights")
    second = operations.request_restart(query=stage.row("delays"), actor="b", now=NOW)
    assert second.pk != first.pk
    assert stage.row("delays").target_revision.number == 2  # type: ignore[union-attr]
    third = operations.request_restart(query=stage.row("delays"), actor="c", now=NOW)
    assert third.pk == second.pk


def test_an_application_restart_takes_a_revision_that_is_newer_than_the_one_under_way(
    stage: Stage,
) -> None:
    stage.query("delays")
    stage.up("delays")
    application = stage.row("delays").application
    restart = application_operations.request_application_restart
    first = restart(application=application, actor="a", now=NOW)
    newest = application.revisions.get()
    application.revisions.create(
        number=2, spec=newest.spec | {"memory": "2g"}, author="ada", created_at=NOW
    )
    second = restart(application=application, actor="b", now=NOW)
    application.refresh_from_db()
    assert second.pk != first.pk
    assert application.target_revision.number == 2  # type: ignore[union-attr]


def test_a_restarted_application_has_a_fresh_driver_and_the_operation_ends(stage: Stage) -> None:
    stage.query("delays")
    stage.up("delays")
    old = stage.driver("delays")
    application = stage.row("delays").application
    operation = application_operations.request_application_restart(
        application=application, actor="ada", now=stage.now
    )
    stage.launcher.obliging = True
    stage.look()
    stage.launcher.leave("delays", epoch=old.epoch)
    stage.wait(5)
    assert stage.driver("delays").epoch > old.epoch
    operation.refresh_from_db()
    assert operation.outcome == OperationOutcome.DONE


def test_stopping_an_application_stops_each_of_its_queries(stage: Stage) -> None:
    stage.application("flights")
    stage.query("a", "flights")
    stage.query("b", "flights")
    stage.up("a", "flights")
    stage.start("b")
    application = stage.row("a").application
    asked = application_operations.request_application_stop(
        application=application, mode=StopMode.NOW, actor="ada", now=stage.now
    )
    assert {operation.query.name for operation in asked if operation.query} == {"a", "b"}


def test_a_group_is_resolved_and_reopened_by_a_person(stage: Stage) -> None:
    query = stage.query("delays")
    group = FailureGroup.objects.create(
        query=query,
        application=query.application,
        fingerprint="f",
        title="t",
        first_seen=NOW,
        last_seen=NOW,
    )
    failures.resolve_group(group=group, actor="olga", now=NOW)
    failures.resolve_group(group=group, actor="pat", now=NOW)
    group.refresh_from_db()
    assert (group.status, group.resolved_by) == (GroupStatus.RESOLVED, "olga")
    failures.reopen_group(group=group, actor="pat", now=NOW)
    group.refresh_from_db()
    assert (group.status, group.resolved_at) == (GroupStatus.OPEN, None)
    assert Transition.objects.filter(subject="group").count() == 2
