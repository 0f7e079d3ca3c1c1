"""What a driver has seen of its topics as it started a run is remembered, once."""

from typing import Any

import pytest

from queries.domain.kafka.topic_ids import Remembered, ids_of
from queries.models.definitions import Checkpoint
from queries.models.drivers import Run
from queries.services.supervision.records import note_look, note_start
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db

SOURCE = {
    "name": "flights",
    "format": "kafka",
    "options": {"kafka.bootstrap.servers": "one:9092", "subscribe": "departures"},
}


def _started(stage: Stage, **spec: Any) -> Run:
    stage.query("delays", **spec)
    stage.start("delays")
    return stage.run("delays")


def _ids(run: Run) -> dict[str, dict[str, Remembered]]:
    return ids_of(Checkpoint.objects.get(pk=run.checkpoint_id).topic_ids)


def test_the_first_start_remembers_and_a_later_one_changes_nothing(stage: Stage) -> None:
    run = _started(stage, sources=[SOURCE])
    note_start(run, {"departures": "a"})
    assert _ids(run) == {"flights": {"departures": Remembered("a")}}
    note_start(run, {"departures": "b"})  # the looks at the brokers judge that, and count
    assert _ids(run) == {"flights": {"departures": Remembered("a")}}


def test_of_a_function_that_reads_over_losses_the_new_topic_is_remembered(stage: Stage) -> None:
    run = _started(stage, kind="python", function="m:f", sources=[])
    note_start(run, {"departures": "a", "arrivals": "c"})
    assert _ids(run) == {"": {"departures": Remembered("a"), "arrivals": Remembered("c")}}
    run.last_batch = 6
    note_start(run, {"departures": "b", "arrivals": "c"})
    assert _ids(run) == {"": {"departures": Remembered("b", 7), "arrivals": Remembered("c")}}


@pytest.mark.guarantee("G-LOSS-1")
def test_what_a_driver_reports_reaches_the_checkpoint_and_the_next_driver(stage: Stage) -> None:
    run = _started(stage, sources=[SOURCE])
    stage.launcher.ready("delays")
    stage.launcher.sees_topics(run.pk, {"departures": "a"})
    stage.look()
    assert _ids(run) == {"flights": {"departures": Remembered("a")}}
    stage.commit("delays")
    stage.launcher.obliging = True
    stage.restart("delays")
    stage.wait(5)
    entries = stage.launcher.assignment("delays").queries
    again = stage.run("delays")
    assert again.pk != run.pk
    assert [entry.topic_ids for entry in entries if entry.run == again.pk] == [
        {"departures": ["a"]}
    ]


def test_a_topic_created_again_under_a_function_is_remembered_beside_the_one_it_has_read(
    stage: Stage,
) -> None:
    run = _started(stage, kind="python", function="m:f", sources=[])
    note_start(run, {"departures": "a"})
    for _ in range(2):
        note_look(_again(run), {"departures": "b", "arrivals": "c"})
        held = {"departures": Remembered("a", now="b"), "arrivals": Remembered("c")}
        assert _ids(run) == {"": held}
    stage.launcher.ready("delays")
    stage.commit("delays")
    stage.launcher.obliging = True
    stage.restart("delays")
    stage.wait(5)
    again = stage.run("delays")
    # The next driver compares with what the checkpoint has read.
    assert [
        entry.topic_ids["departures"]
        for entry in stage.launcher.assignment("delays").queries
        if entry.run == again.pk
    ] == [["a"]]


def test_of_a_definitions_own_sources_the_looks_at_the_brokers_judge(stage: Stage) -> None:
    run = _started(stage, sources=[SOURCE])
    note_start(run, {"departures": "a"})
    note_look(_again(run), {"departures": "b"})
    assert _ids(run) == {"flights": {"departures": Remembered("a")}}


def _again(run: Run) -> Run:
    """Return the run as the next look reads it."""
    return Run.objects.select_related("checkpoint", "revision").get(pk=run.pk)
