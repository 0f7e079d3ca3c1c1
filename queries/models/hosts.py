"""Hosts: where workers run drivers, and when each last gave a sign of life.

The worker of a host writes its row ([W]), by the database's clock: hosts whose own clocks differ
are compared by one.
"""

from typing import ClassVar

from django.db import models


class Host(models.Model):
    """One host by its HEADGATE_HOST, and the one worker process that acts for it."""

    name = models.CharField(max_length=255, unique=True)
    claim = models.CharField(max_length=36, default="")  # [W] of its worker's process; "": none
    boot_id = models.CharField(max_length=64, default="")  # [W] where that process runs …
    pid_space = models.CharField(max_length=64, default="")  # [W] … in which pids mean something
    pid = models.IntegerField(null=True)  # [W]
    start_time = models.BigIntegerField(null=True)  # [W] clock ticks since boot
    seen_at = models.DateTimeField(null=True)  # [W] its newest sign of life
    steady_since = models.DateTimeField(null=True)  # [W] no sign has been late since
    stopping_since = models.DateTimeField(null=True)  # [O] drivers end, desired states remain

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name
