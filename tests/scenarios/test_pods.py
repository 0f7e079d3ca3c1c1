"""Drivers that are pods need nothing of their worker's host, and take nothing from others."""

import pytest

from listeners.models import Rollup
from queries.models.drivers import Driver
from queries.services.supervision import assignments
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


def test_a_pod_that_kubernetes_deletes_has_time_for_the_longest_batch(stage: Stage) -> None:
    stage.application("far", driver="pod")
    query = stage.query("far", "far")
    figures = {"batches": 1, "rows": 1, "duration_ms_min": 1, "duration_ms_sum": 100_000}
    Rollup.objects.create(
        query=query.pk, width_s=60, start=stage.now, duration_ms_max=100_000, **figures
    )
    stage.start("far")
    stage.look()
    driver = Driver.objects.get()
    assert assignments.driver_spec(driver).grace_s == 150
