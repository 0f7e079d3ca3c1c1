"""Two hosts in one installation: each worker acts on its own host's drivers, and on no other's."""

from typing import Any

import pytest

from controlplane.machine import drivers
from queries.models.drivers import Driver
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


def test_two_healthy_hosts_never_call_each_others_drivers_lost(settings: Any) -> None:
    here, there = Stage(), Stage()
    settings.HEADGATE_HOST = "host-a"
    here.query("flights")
    here.up("flights")
    settings.HEADGATE_HOST = "host-b"
    there.query("delays")
    there.up("delays")

    seen = set()
    for second in range(24):
        name, stage = (("host-a", here), ("host-b", there))[second % 2]
        settings.HEADGATE_HOST = name
        stage.look()
        seen |= {here.phase("flights"), here.phase("delays")}

    assert seen == {"RUNNING"}


def test_ending_a_hosts_drivers_leaves_the_other_hosts_rows_alone(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = Stage(), Stage()
    settings.HEADGATE_HOST = "host-a"
    here.query("flights")
    here.up("flights")
    settings.HEADGATE_HOST = "host-b"
    there.query("delays")
    there.up("delays")
    monkeypatch.setattr(drivers, "launcher", lambda: there.launcher)
    there.launcher.obliging = True

    drivers.end(now=there.now, limit_s=1)

    ended = {row.host: row.end_wanted for row in Driver.objects.all()}
    assert ended == {"host-a": "", "host-b": "SHUTDOWN"}
