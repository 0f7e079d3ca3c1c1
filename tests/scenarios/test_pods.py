"""Drivers that are pods need nothing of their worker's host, and take nothing from others."""

import pytest

from queries.models.drivers import Driver
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_pods_start_at_once_however_many_drivers_start_or_how_large_they_are(stage: Stage) -> None:
    for number in range(4):
        stage.application(f"pod-{number}", driver="pod", memory="4000g")
        stage.query(f"pod-{number}", f"pod-{number}")
        stage.start(f"pod-{number}")
    stage.application("process")
    stage.query("process", "process")
    stage.start("process")
    stage.look()
    assert Driver.objects.filter(ended_at=None).count() == 5


def test_a_pod_has_no_spark_ui_and_a_process_has_one(stage: Stage) -> None:
    for name, place in (("far", "pod"), ("near", "process")):
        stage.application(name, driver=place)
        stage.query(name, name)
        stage.start(name)
    stage.look()
    ports = dict(Driver.objects.values_list("application__name", "ui_port"))
    assert ports["far"] is None
    assert ports["near"] is not None
