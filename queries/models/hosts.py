"""Hosts that run drivers, with their heartbeats, and this installation with its counter of
epochs.

A host's worker writes its row ([W]) with the database's clock, so that hosts whose own clocks
differ are compared by a single clock.
"""

import uuid
from typing import ClassVar

from django.db import models, transaction


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


class Installation(models.Model):
    """The single row that names the installation and holds its last epoch."""

    uuid = models.UUIDField(default=uuid.uuid4, editable=False)
    last_epoch = models.BigIntegerField(default=0)  # [R] drawn for every Driver and every Run

    def __str__(self) -> str:
        return str(self.uuid)

    @classmethod
    def get(cls) -> "Installation":
        """Return the installation's row, created at the first call."""
        row, _ = cls.objects.get_or_create(pk=1)
        return row

    @classmethod
    def lock(cls) -> None:
        """Serialize transactions that take this lock, until each ends.

        SQLite's IMMEDIATE transactions wait for each other anyway; on PostgreSQL, the row lock has
        the same effect.
        """
        cls.get()
        cls.objects.select_for_update().get(pk=1)

    @classmethod
    def draw_epoch(cls) -> int:
        """Return the next epoch; the caller's transaction decides whether it counts."""
        with transaction.atomic():
            cls.get()
            cls.objects.filter(pk=1).update(last_epoch=models.F("last_epoch") + 1)
            epoch: int = cls.objects.values_list("last_epoch", flat=True).get(pk=1)
            return epoch

    @classmethod
    def raise_epoch(cls, observed: int) -> None:
        """Raise the counter to at least `observed`: restoring a database can make it too low."""
        cls.get()
        cls.objects.filter(pk=1, last_epoch__lt=observed).update(last_epoch=observed)
