"""Drivers and the hosts that run them, with their heartbeats, and this installation with its
counter of epochs.

A host's worker writes its row ([W]) with the database's clock, so that hosts whose own clocks
differ are compared by a single clock.
"""

import uuid
from typing import ClassVar

from django.conf import settings
from django.db import models, transaction
from django.db.models import Q

from queries.domain.failures.categories import FailureSubject, subject_of
from queries.domain.states import OPEN_DRIVER_STATES, DriverKind, DriverState, RunOutcome


class Driver(models.Model):
    """One driver process; (boot_id, pid, start_time) identifies it and is never reused.

    A standby becomes a SERVICE when it takes over; it keeps its row, its folder and its epoch.
    """

    kind = models.CharField(max_length=8, default=DriverKind.SERVICE)
    application = models.ForeignKey(
        "queries.Application", on_delete=models.CASCADE, related_name="drivers"
    )
    application_revision = models.ForeignKey(
        "queries.ApplicationRevision", on_delete=models.PROTECT, related_name="+"
    )
    pools = models.JSONField(default=list)  # the pools it was launched with
    code_sha256 = models.CharField(max_length=64, default="")
    operation = models.OneToOneField(  # which a PROBE answers; null for a SERVICE
        "queries.Operation", null=True, on_delete=models.SET_NULL, related_name="probe"
    )
    epoch = models.BigIntegerField(unique=True)
    generation = models.BigIntegerField(default=0)  # the application's at its creation
    host = models.CharField(max_length=255)
    directory = models.CharField(max_length=1024)
    created_at = models.DateTimeField()
    took_over_at = models.DateTimeField(null=True)  # null: it was never a standby
    launched_with = models.CharField(max_length=64, default="")  # a standby: digest of its spec
    state = models.CharField(max_length=8, default=DriverState.STARTING, db_index=True)
    state_reason = models.CharField(max_length=60, default="")  # Reason
    state_since = models.DateTimeField()
    assignment_digest = models.CharField(max_length=64, default="")  # of its latest assignment
    applied_generation = models.BigIntegerField(default=0)
    #: When its start last advanced, and its processor seconds and newest step then
    #: (`supervision.progress`); null: it has not been seen yet.
    advanced_at = models.DateTimeField(null=True)
    advanced_cpu_s = models.FloatField(default=0)
    advanced_step = models.CharField(max_length=40, default="")
    end_wanted = models.CharField(max_length=60, default="")  # Reason; "" while it is wanted
    end_wanted_at = models.DateTimeField(null=True)

    boot_id = models.CharField(max_length=64, default="")
    pid = models.IntegerField(null=True)  # the driver's Python
    start_time = models.BigIntegerField(null=True)  # clock ticks since boot
    jvm_pid = models.IntegerField(null=True)
    spark_version = models.CharField(max_length=40, default="")
    java_version = models.CharField(max_length=80, default="")
    spark_application_id = models.CharField(max_length=80, default="")
    executors = models.JSONField(default=list)  # on a cluster: [{id, address, cores, active, …}]
    executors_wanted = models.JSONField(
        null=True
    )  # `ExecutorsWanted`: none is active; null: some is
    release = models.CharField(max_length=64, default="")  # of our code that it runs
    ui_port = models.PositiveIntegerField(null=True)  # of its Spark UI, assigned by us; null: none

    ended_at = models.DateTimeField(null=True)
    exit_python = models.CharField(max_length=12, default="")  # code | signal | UNKNOWN
    exit_jvm = models.CharField(max_length=12, default="")
    exit_killed = models.CharField(max_length=20, default="")  # Killer: who ended it
    last_seq = models.BigIntegerField(null=True)  # of its events, as reported at its exit

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["application"],
                name="driver_one_open",
                condition=Q(kind=DriverKind.SERVICE, state__in=sorted(OPEN_DRIVER_STATES)),
            ),
            models.UniqueConstraint(  # a host that is gone does not keep another from having one
                fields=["application", "host"],
                name="driver_one_standby",
                condition=Q(kind=DriverKind.STANDBY, state__in=sorted(OPEN_DRIVER_STATES)),
            ),
        ]
        ordering: ClassVar = ["-epoch"]

    def __str__(self) -> str:
        return f"driver {self.epoch}"

    @property
    def identity(self) -> dict[str, str | int]:
        """The identity of its processes, by column, as seen by the launcher; {} if not seen yet."""
        if self.pid is None or self.start_time is None:
            return {}
        jvm = {} if self.jvm_pid is None else {"jvm_pid": self.jvm_pid}
        return {"boot_id": self.boot_id, "pid": self.pid, "start_time": self.start_time, **jvm}


class SparkUiVisit(models.Model):
    """A user's access to one driver's Spark UI; tokens are stored as SHA-256 (hexadecimal). [P]"""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    session_key = models.CharField(max_length=40)  # ends with this session
    driver = models.ForeignKey(Driver, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(db_index=True)
    ticket = models.CharField(max_length=64, unique=True)  # valid once
    opened_at = models.DateTimeField(null=True)
    path = models.CharField(max_length=64, null=True, unique=True)  # noqa: DJ001 (null: unopened)

    def __str__(self) -> str:
        return f"visit {self.pk} to driver {self.driver_id}"


class Run(models.Model):
    """One start of a query inside a driver (Spark's runId)."""

    query = models.ForeignKey("queries.Query", on_delete=models.CASCADE, related_name="runs")
    driver = models.ForeignKey(Driver, on_delete=models.CASCADE, related_name="runs")
    epoch = models.BigIntegerField(unique=True)
    checkpoint = models.ForeignKey(
        "queries.Checkpoint", on_delete=models.PROTECT, related_name="runs"
    )
    revision = models.ForeignKey(
        "queries.QueryRevision", on_delete=models.PROTECT, related_name="runs"
    )
    code_sha256 = models.CharField(max_length=64, default="")
    generation = models.BigIntegerField()  # the query's at its creation
    cause = models.CharField(max_length=60)  # Reason: why it was started
    actor = models.CharField(max_length=150, default="")  # requester; "" for supervision
    params = models.JSONField(null=True)  # the values of its parameters; null: not recorded
    created_at = models.DateTimeField()

    spark_run_id = models.CharField(max_length=36, null=True, unique=True)  # noqa: DJ001
    started_at = models.DateTimeField(null=True)
    first_commit_at = models.DateTimeField(null=True)
    proven_at = models.DateTimeField(null=True)  # first commit or first idle event
    last_batch = models.BigIntegerField(null=True)
    last_commit_at = models.DateTimeField(null=True)  # of that batch, as its driver saw it
    stop_asked_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(
        max_length=12, default="", choices=[(o, o) for o in RunOutcome], db_index=True
    )
    warnings = models.JSONField(default=list)
    replayed = models.JSONField(null=True)  # what it replayed (exposure.py); null: not measured
    at_death = models.CharField(max_length=8, default="")  # Candidacy, when its driver died
    batch_at_death = models.BigIntegerField(null=True)  # in flight at that time
    accepts_loss = models.BooleanField(default=False)  # by go-on: skips a gap in its sources
    found = models.IntegerField(null=True)  # its number among the script's started queries
    dump_asked_at = models.DateTimeField(null=True)  # the last request for a thread dump
    #: When its checkpoint's commits were compared with its reports, after its end.
    commits_compared_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index(  # used by `batch_repair.count_unreported`
                fields=["ended_at"],
                name="run_commits_due",
                condition=Q(commits_compared_at=None, ended_at__isnull=False),
            )
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["query"], name="run_one_open", condition=Q(outcome="")),
            models.UniqueConstraint(fields=["driver", "found"], name="run_found_once"),
        ]
        ordering: ClassVar = ["-epoch"]

    def __str__(self) -> str:
        return f"run {self.pk}"

    @property
    def subject(self) -> FailureSubject:
        """The subject of its failures: the suggested fix depends on it."""
        return subject_of(self.revision.kind, discovered=self.query.discovered)


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
    """The single row with the installation's name and its last epoch."""

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
    def raise_epoch(cls, observed_epoch: int) -> None:
        """Raise the counter to at least this epoch: restoring a database can make it too low."""
        cls.get()
        cls.objects.filter(pk=1, last_epoch__lt=observed_epoch).update(last_epoch=observed_epoch)
