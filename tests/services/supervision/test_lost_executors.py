"""Executors that come and go are written down once each, with what Spark said."""

from dataclasses import replace
from datetime import timedelta

import pytest

from queries.domain.protocol import DriverStatus, ExecutorSeen
from queries.domain.states import Reason
from queries.domain.supervision.decision import DriverDecision
from queries.domain.supervision.observation import Liveness, Sighting
from queries.models.drivers import Driver
from queries.models.history import Transition
from queries.services.supervision import decision_rows
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


def tell(stage: Stage, *executors: ExecutorSeen) -> Driver:
    """Have the driver say which executors it has."""
    status = DriverStatus(
        epoch=1, applied_generation=1, at=stage.now.isoformat(), executors=executors
    )
    driver = Driver.objects.get()
    sighting = Sighting(Liveness.ALIVE, status=status)
    decision_rows.update_driver(driver, sighting, DriverDecision(), now=stage.now)
    return Driver.objects.get()


def test_each_change_is_one_transition() -> None:
    stage = Stage()
    stage.query("delays")
    stage.start("delays")
    came = ExecutorSeen("0", "10.0.0.1:7000", 2, True, stage.now.isoformat())
    lost = replace(came, active=False, removed_at=stage.now.isoformat(), reason="worker lost")
    found = replace(came, id="1")
    for executors in ((), (came,), (came,), (lost,), (found, lost), (found, lost)):
        stage.now += timedelta(seconds=3)
        driver = tell(stage, *executors)
    written = Transition.objects.filter(subject="executor").order_by("pk")
    assert [(one.before, one.after, one.detail.text) for one in written] == [
        ("", "ACTIVE", "executor 0 on 10.0.0.1:7000"),
        ("ACTIVE", "LOST", "executor 0 on 10.0.0.1:7000: worker lost"),
        ("", "ACTIVE", "executor 1 on 10.0.0.1:7000"),
    ]
    came_and_lost = [Reason.EXECUTOR_CAME, Reason.EXECUTOR_LOST, Reason.EXECUTOR_CAME]
    assert [one.reason for one in written] == came_and_lost
    assert [one["id"] for one in driver.executors] == ["1", "0"]
