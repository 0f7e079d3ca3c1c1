"""Schedules: the current position of each, and one row for each planned time.

The schedule itself is a field of a definition; both tables are written by one task [S], a pause by
operations [O], and the state of a folder by the task that lists it [L].
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from queries.domain.schedules.checks import skipped_words
from queries.domain.schedules.planning import OPEN_STATES, PlannedState, SkipReason
from queries.models.history import BecauseField


def _single_subject(name: str) -> models.CheckConstraint:
    return models.CheckConstraint(
        name=name,
        condition=Q(query__isnull=False, application__isnull=True)
        | Q(query__isnull=True, application__isnull=False),
    )


class ScheduleState(models.Model):
    """The state of one schedule: its pause, and the times, runs or files that were handled."""

    query = models.OneToOneField(  # null: a script's
        "queries.Query", null=True, on_delete=models.CASCADE, related_name="schedule_state"
    )
    application = models.OneToOneField(  # of a script; null: a query's
        "queries.Application", null=True, on_delete=models.CASCADE, related_name="schedule_state"
    )
    kind = models.CharField(max_length=5, default="cron")  # [S] `Schedule.kind`
    digest = models.CharField(max_length=64, default="")  # [S] of `when`; changed: begins again
    #: [S] every planned time up to this one is in a row, by compare-and-set; only falls where a
    #: clock that was ahead had moved it
    cursor = models.DateTimeField()
    next_at = models.DateTimeField(null=True)  # [S] when the task must look again
    upstream = models.ForeignKey(  # [S] the query whose runs it follows; null: not found yet
        "queries.Query", null=True, on_delete=models.SET_NULL, related_name="followers"
    )
    #: [S] every end up to this run's has its row; only rises, by compare-and-set
    upstream_run = models.BigIntegerField(default=0)
    totals = models.JSONField(default=dict)  # [L] `Totals` of the newest listing; {}: none yet
    looked_at = models.DateTimeField(null=True)  # [L] when it was listed
    #: [L] when the first and the newest of the files that no run covers were noticed; [S] null
    first_arrival_at = models.DateTimeField(null=True)
    newest_arrival_at = models.DateTimeField(null=True)
    #: [S] [L] why nothing can start it, as a sentence; "" if nothing is wrong
    problem = models.CharField(max_length=500, default="")
    paused_at = models.DateTimeField(null=True)  # [O] null: not paused
    paused_by = models.CharField(max_length=150, default="")  # [O]

    class Meta:
        constraints: ClassVar = [_single_subject("schedule_state_subject")]
        indexes: ClassVar = [
            models.Index(
                fields=["next_at"], name="schedule_next", condition=Q(next_at__isnull=False)
            )
        ]

    def __str__(self) -> str:
        return f"schedule of {self.query or self.application}"


class PlannedRun(models.Model):
    """One planned time of a schedule: the one run that it gave, or why it gave none. [S]

    Consecutive times that were skipped at once, for the same reason, are one row.
    """

    query = models.ForeignKey(  # null: a script's
        "queries.Query", null=True, on_delete=models.CASCADE, related_name="planned_runs"
    )
    application = models.ForeignKey(  # of a script; null: a query's
        "queries.Application", null=True, on_delete=models.CASCADE, related_name="planned_runs"
    )
    key = models.CharField(max_length=120)  # the planned time, or what the upstream's run is
    due_at = models.DateTimeField()  # of several times, the newest
    first_due_at = models.DateTimeField(null=True)  # of several times, the oldest; null: it is one
    due_times = models.PositiveIntegerField(default=1, db_default=1)
    state = models.CharField(max_length=8, choices=[(s, s) for s in PlannedState])
    skipped = models.CharField(max_length=12, default="")  # `SkipReason`; "" unless SKIPPED
    #: why it waits, failed or was skipped, as a sentence
    reason = BecauseField()
    operation = models.ForeignKey(  # the start that it requested
        "queries.Operation", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    #: of its subject, after the schedule's last request: that start, or the stop at its limit
    generation = models.BigIntegerField(null=True)
    params = models.JSONField(default=dict)  # as rendered for its planned time
    started_at = models.DateTimeField(null=True)  # of its first run; null: not started yet
    ended_at = models.DateTimeField(null=True)  # of its last run; of a refused start: the refusal

    class Meta:
        constraints: ClassVar = [
            _single_subject("planned_run_subject"),
            models.UniqueConstraint(fields=["query", "key"], name="planned_run_of_query"),
            models.UniqueConstraint(
                fields=["application", "key"], name="planned_run_of_application"
            ),
        ]
        indexes: ClassVar = [
            models.Index(  # few: waiting or running
                fields=["due_at"],
                name="planned_run_open",
                condition=Q(state__in=sorted(OPEN_STATES)),
            ),
            models.Index(fields=["query", "-due_at"], name="planned_run_newest"),
        ]
        ordering: ClassVar = ["-due_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.key} {self.state}"

    @property
    def why(self) -> str:
        """Why it was skipped, waits or failed, in one or two sentences."""
        if self.state == PlannedState.SKIPPED and self.skipped in set(SkipReason):
            return skipped_words(
                SkipReason(self.skipped),
                self.due_times,
                self.first_due_at,
                self.due_at,
                reason=str(self.reason.text),
            )
        if self.state == PlannedState.WAITING:
            return "It starts as soon as no earlier run is open."
        return str(self.reason.text)

    @property
    def late_s(self) -> float | None:
        """Return the seconds from the planned time to the start; None if it has not started.

        0.0 for a run that a clock that was ahead has started before its planned time.
        """
        if self.started_at is None:
            return None
        return max((self.started_at - self.due_at).total_seconds(), 0.0)

    @property
    def duration_s(self) -> float | None:
        """Return the seconds from the start to the end; None until it has ended."""
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()
