"""Applications: the unit launched as one Spark driver process; their pools and code.

The writer of each column is marked: [C] catalog, [O] operations, [R] reconcile.
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from queries.domain.code.archives import named
from queries.domain.states import Desired, Phase, Reason, RestartBlock, StopMode
from queries.models.history import BecauseField


class Application(models.Model):
    """The unit launched as one driver process: target revision, failures and next attempt."""

    name = models.CharField(max_length=80)  # [C] unique among unarchived ones, immutable
    own = models.BooleanField(default=False)  # [C] created for one query
    #: [C] `team` -> "a": on the object, not in a revision, so that relabelling restarts nothing
    labels = models.JSONField(default=dict, blank=True)
    #: [C] owner, whose operators and authors act on it and its queries; null: everybody's
    team = models.ForeignKey(
        "queries.Team", null=True, on_delete=models.PROTECT, related_name="applications"
    )
    created_at = models.DateTimeField()  # [C]
    target_revision = models.ForeignKey(  # [O] the next driver's revision
        "queries.ApplicationRevision", null=True, on_delete=models.PROTECT, related_name="+"
    )
    generation = models.BigIntegerField(default=0)  # [O] rises with each verb on the application
    archived_at = models.DateTimeField(null=True)  # [O]

    #: [R] host of its drivers and local files; "" if not placed yet
    host = models.CharField(max_length=255, default="", db_index=True)
    version = models.BigIntegerField(default=0)  # [R] compare-and-set of every reconcile
    assignment_generation = models.BigIntegerField(default=0)  # [R]
    reached_generation = models.BigIntegerField(default=0)  # [R]
    seen_generation = models.BigIntegerField(default=0)  # [R] an unseen one clears the counters
    failures = models.IntegerField(default=0)  # [R] consecutive driver deaths
    next_attempt_at = models.DateTimeField(null=True)  # [R]
    restart_block = models.CharField(
        max_length=8, default="", choices=[(h, h) for h in RestartBlock]
    )  # [R]
    restart_block_reason = BecauseField()  # [R] its newest driver's failure
    #: [R] when reconcile must look again; read by `ticks.sweep`, which takes the due ones
    reconcile_after = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["name"],
                name="application_name_living",
                condition=Q(archived_at__isnull=True),
            )
        ]
        indexes: ClassVar = [
            models.Index(
                fields=["reconcile_after"],
                name="application_reconcile_after",
                condition=Q(reconcile_after__isnull=False),
            )
        ]
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name

    def renew(self) -> None:
        """Replace the driver with one on the newest revision."""
        self.generation += 1
        self.target_revision = self.revisions.order_by("-number").first()
        self.save(update_fields=["generation", "target_revision"])


class Script(models.Model):
    """The script that an application runs instead of defined queries, and its desired state."""

    application = models.OneToOneField(  # [C]
        Application, on_delete=models.CASCADE, related_name="script"
    )
    desired = models.CharField(  # [O]; [R] sets STOPPED when the script has finished
        max_length=8, default=Desired.STOPPED, choices=[(d, d) for d in Desired]
    )
    stop_mode = models.CharField(max_length=8, default=StopMode.GRACEFUL)  # [O]
    stop_deadline = models.DateTimeField(null=True)  # [O] then a graceful stop becomes immediate
    phase = models.CharField(max_length=16, default=Phase.STOPPED)  # [R]
    phase_reason = models.CharField(max_length=60, default=Reason.NEVER_STARTED)  # [R] Reason
    phase_detail = BecauseField()  # [R] current activity, in addition to the reason
    phase_since = models.DateTimeField(null=True)  # [R]
    #: [R] ignored and rejected requests of the script, from its newest driver
    notes = models.JSONField(default=list)
    #: [R] a new query while others are missing (`protocol.ScriptQuestion`); [O] {}: answered
    question = models.JSONField(default=dict)
    #: [O] identities that an author declared to be new queries; [R] until they have a row
    accepted = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"script of {self.application_id}"


class ApplicationRevision(models.Model):
    """One immutable version of an application's definition."""

    application = models.ForeignKey(Application, on_delete=models.CASCADE, related_name="revisions")
    number = models.IntegerField()
    spec = models.JSONField()  # ApplicationSpec's JSON form
    author = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["application", "number"], name="application_revision_number"
            )
        ]
        ordering: ClassVar = ["-number"]

    def __str__(self) -> str:
        return f"{self.application_id} r{self.number}"


class SchedulerPool(models.Model):
    """A FAIR scheduler pool of an application; it cannot be deleted while a query uses it."""

    application = models.ForeignKey(Application, on_delete=models.CASCADE, related_name="pools")
    name = models.CharField(max_length=80)
    weight = models.IntegerField(default=1)
    min_share = models.IntegerField(default=0)  # cores
    mode = models.CharField(max_length=4, default="FAIR")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["application", "name"], name="scheduler_pool_name")
        ]
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return self.name


class UploadedCode(models.Model):
    """Uploaded code; its files are in `CODE_DIR/<sha256>/0`. [P]"""

    sha256 = models.CharField(max_length=64, unique=True)  # of file names and contents
    files = models.IntegerField()
    bytes = models.BigIntegerField()  # unpacked
    uploaded_at = models.DateTimeField()  # last time; unreferenced code is deleted some days later
    uploaded_by = models.CharField(max_length=150)  # first time
    host = models.CharField(max_length=255)  # which has the files

    class Meta:
        ordering: ClassVar = ["-pk"]

    def __str__(self) -> str:
        return self.digest

    @property
    def digest(self) -> str:
        """Return its digest as used in definitions and REST."""
        return named(self.sha256)
