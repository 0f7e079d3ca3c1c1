"""Queries of an application whose driver is a pod keep their checkpoints on shared storage."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from queries.domain.errors import Invalid
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from queries.roles import AuthorRights
from queries.services.definitions import catalog
from queries.services.local_roots import allowed_paths, checkpoint_problems
from queries.services.supervision.assignments import relocate_checkpoint

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SHARED = "hdfs://name:8020/checkpoints"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Settings) -> None:
    settings.HEADGATE_HOME = tmp_path
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"
    settings.ALLOWED_PATHS = [str(tmp_path / "data"), "hdfs://name:8020/data"]
    settings.POD_IMAGE, settings.POD_CHECKPOINTS = "example.org/headgate:1", SHARED


def application(**spec: Any) -> Application:
    return catalog.create_application(
        name="flights", spec=spec, actor="ana", now=NOW, rights=AuthorRights.ALL
    )


def create(name: str = "delays", sink: str = "", **more: Any) -> Query:
    kept = {"format": "parquet", "options": {"path": sink}} if sink else {"format": "noop"}
    spec = {
        "kind": "sql",
        "sources": [{"name": "ticks", "format": "rate"}],
        "sql": "SELECT value FROM ticks",
        "sink": kept,
    }
    return catalog.create_query(
        name=name, spec=spec, actor="ana", now=NOW, rights=AuthorRights.ALL, **more
    )


def problems(error: pytest.ExceptionInfo[Invalid]) -> dict[str, str]:
    return {problem.field: problem.sentence() for problem in error.value.problems}


def location(query: Query) -> str:
    return query.checkpoints.get().location


def test_by_default_a_checkpoint_is_below_the_installations_folder_for_pods() -> None:
    application(driver="pod")
    shared = create("delays", application="flights")
    own = create("hours", application_spec={"driver": "pod"})
    assert location(shared) == f"{SHARED}/_flights/delays"
    assert location(own) == f"{SHARED}/hours"
    for query in (shared, own):
        assert checkpoint_problems(location(query), query.application.name) == []
        relocate_checkpoint(query, query.checkpoints.get())  # no host's folder is better
        assert Checkpoint.objects.get(query=query).location.startswith(SHARED)
    assert allowed_paths("flights").problem("sink", f"{SHARED}/x", str) is not None


@pytest.mark.guarantee("G-POD-5")
def test_without_that_folder_each_query_needs_a_checkpoint_on_shared_storage(
    settings: Settings, tmp_path: Path
) -> None:
    settings.POD_CHECKPOINTS = ""
    settings.ALLOWED_PATHS = [str(tmp_path / "data"), "hdfs://name:8020"]
    application(driver="pod")
    for checkpoint in ("", str(tmp_path / "data" / "c"), f"file://{tmp_path}/data/c"):
        with pytest.raises(Invalid) as error:
            create(application="flights", checkpoint=checkpoint)
        said = problems(error)["checkpoint"]
        assert "a driver's pod has its own disk, which is deleted with the pod" in said
        assert "for example s3a://bucket/checkpoints/NAME" in said
    query = create(application="flights", checkpoint=f"{SHARED}/delays")
    assert location(query) == f"{SHARED}/delays"
    with pytest.raises(Invalid) as error:
        create("hours", application_spec={"driver": "pod"})
    assert "checkpoint" in problems(error)


def test_a_process_keeps_its_checkpoints_on_its_host(tmp_path: Path) -> None:
    application()
    assert location(create(application="flights")).startswith(f"file://{tmp_path}/checkpoints/")


def test_an_application_with_local_checkpoints_cannot_move_into_a_pod(tmp_path: Path) -> None:
    flights = application()
    create(application="flights")
    create("hours", sink=str(tmp_path / "data" / "out"), application="flights")
    with pytest.raises(Invalid) as error:
        catalog.revise_application(
            application=flights,
            spec={"driver": "pod"},
            expected_revision=1,
            actor="ana",
            now=NOW,
        )
    found = [one.sentence() for one in error.value.problems if one.field == "driver"]
    assert len(found) == len(error.value.problems) == 3  # two checkpoints and a sink
    assert sum("Define delays again with a checkpoint on S3 or HDFS" in one for one in found) == 1
    assert sum("its sink.options.path is local" in one for one in found) == 1


def test_an_application_without_them_moves_there_and_back() -> None:
    flights = application()
    for driver in ("pod", "process"):
        revision = catalog.revise_application(
            application=flights, spec={"driver": driver}, actor="ana", now=NOW
        )
        assert revision.spec["driver"] == driver


def test_a_pod_needs_an_image_from_somewhere(settings: Settings) -> None:
    settings.POD_IMAGE = ""
    with pytest.raises(Invalid, match="HEADGATE_POD_IMAGE"):
        application(driver="pod")
