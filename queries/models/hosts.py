"""Hosts that run drivers, and their heartbeats.

A host's worker writes its row ([W]) with the database's clock, so that hosts whose own clocks
differ are compared by a single clock.
"""

from typing import ClassVar

from django.db import models


class Host(models.Model):
    """A host by its HEADGATE_HOST, and the only worker process that acts for it."""

    name = models.CharField(max_length=255, unique=True)
    claim = models.CharField(max_length=36, default="")  # [W] of its worker's process; "" if none
    boot_id = models.CharField(max_length=64, default="")  # [W] where that process runs …
    pid_space = models.CharField(max_length=64, default="")  # [W] … and its pid namespace
    pid = models.IntegerField(null=True)  # [W]
    start_time = models.BigIntegerField(null=True)  # [W] clock ticks since boot
    seen_at = models.DateTimeField(null=True)  # [W] its newest heartbeat
    steady_since = models.DateTimeField(null=True)  # [W] no late heartbeat since
    home = models.CharField(max_length=1024, default="")  # [W] HEADGATE_HOME; "" if not reported
    stopping_since = models.DateTimeField(null=True)  # [O] drivers end, desired states are kept

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name
