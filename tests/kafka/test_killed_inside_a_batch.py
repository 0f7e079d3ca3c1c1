"""What the JVM commits after its Python was killed is counted, and read from the checkpoint."""

import os
import signal
from datetime import timedelta

import pytest
from django.utils import timezone

from listeners.models import Gap, Progress
from queries.models.drivers import Driver, Run
from queries.selectors.hosts import logs_at
from queries.services.checkpoints.batch_repair import (
    UNDER_WAY,
    count_unreported,
    repair_from_checkpoints,
)
from tests.kafka.world import World

pytestmark = [
    *(pytest.mark.faults, pytest.mark.spark, pytest.mark.redis),
    pytest.mark.django_db,
]

SLOW = "SELECT reflect('java.lang.Thread', 'sleep', 400L + value - value) AS slept FROM records"


@pytest.mark.guarantee("G-EVENT-2")
def test_a_batch_that_is_committed_after_its_python_was_killed_is_counted(world: World) -> None:
    """Python is frozen inside a batch and killed once the JVM has committed it."""
    world.looks = False
    source = {"name": "records", "format": "rate-micro-batch", "options": {"rowsPerBatch": "1"}}
    row = world.query("slow", "", "", sources=[source], sql=SLOW)
    logs = logs_at(row.checkpoints.get().location)
    world.start("slow")
    world.wait(lambda: Progress.objects.filter(batch__gte=1).exists(), "two batches are reported")
    run = Run.objects.select_related("driver").get(query=row)
    driver = Driver.objects.get(pk=run.driver_id)
    assert driver.pid is not None
    begun = max(logs.begun())
    world.wait(lambda: max(logs.begun()) > begun, "a batch begins")
    inside = max(logs.begun())
    os.kill(driver.pid, signal.SIGSTOP)
    try:
        world.wait(lambda: (logs.last_commit() or 0) >= inside, "the JVM commits it")
    finally:
        os.kill(driver.pid, signal.SIGKILL)
    world.wait(
        lambda: Run.objects.filter(pk=run.pk, ended_at__isnull=False).exists(), "the run has ended"
    )
    world.stop("slow")
    world.end()

    told = set(Progress.objects.values_list("batch", flat=True))
    missing = set(logs.committed()) - told
    assert inside in missing, (inside, sorted(told), logs.committed())
    assert not Gap.objects.filter(kind="batch").exists()  # it lies in no hole
    later = timezone.now() + UNDER_WAY + timedelta(seconds=1)
    assert count_unreported(now=later) == len(missing)
    gap = Gap.objects.get(kind="batch", run=run.pk)
    assert (gap.first, gap.beyond_repair) == (min(missing), True)
    assert repair_from_checkpoints(now=later) == len(missing)
    told = set(Progress.objects.values_list("batch", flat=True))
    assert set(logs.committed()) <= told
    assert not Gap.objects.filter(kind="batch", beyond_repair=True).exists()
