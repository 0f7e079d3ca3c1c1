"""The history of runs and their decisions, and how rows store a `Because`: a code with its
values.
"""

import uuid
from typing import Any, ClassVar

from django.db import models
from django.db.models import Q

from headgate_ground.masking import TABLE, mask_text
from queries.domain.reasons import Because
from queries.domain.states import PLAIN_VERBS, GroupStatus, OperationOutcome


class BecauseField(models.JSONField):
    """A `Because`, stored as JSON; {} if there is none."""

    _pyi_private_set_type: Because
    _pyi_private_get_type: Because

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"default": Because, **kwargs})

    def deconstruct(self) -> Any:
        """Return a plain JSON field: migrations do not know `Because`."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, {**kwargs, "default": dict}

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Because:
        """Return the stored value; empty for a join without a row."""
        return Because.of(super().from_db_value(value, expression, connection) or {})

    def get_prep_value(self, value: Any) -> Any:
        """Return the JSON form of a value to write or compare with."""
        return super().get_prep_value(value.as_json() if isinstance(value, Because) else value)

    def value_to_string(self, obj: models.Model) -> Any:
        """Return the JSON form that `dumpdata` writes."""
        return self.value_from_object(obj).as_json()


class FailureGroup(models.Model):
    """Failures of one query (or one application's drivers) with the same fingerprint."""

    query = models.ForeignKey(  # null: the application's own
        "queries.Query", null=True, on_delete=models.CASCADE, related_name="failure_groups"
    )
    application = models.ForeignKey(
        "queries.Application", on_delete=models.CASCADE, related_name="failure_groups"
    )
    fingerprint = models.CharField(max_length=64)  # unique per (application, query)
    title = models.CharField(max_length=300)
    status = models.CharField(max_length=8, default=GroupStatus.OPEN)  # [O]; [R] reopens
    count = models.IntegerField(default=0)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    resolved_at = models.DateTimeField(null=True)  # [O]
    resolved_by = models.CharField(max_length=150, default="")  # [O]
    regressed_at = models.DateTimeField(null=True)  # [R] when a resolved group failed again

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["query", "fingerprint"],
                name="failure_group_of_query",
                condition=Q(query__isnull=False),
            ),
            models.UniqueConstraint(
                fields=["application", "fingerprint"],
                name="failure_group_of_application",
                condition=Q(query__isnull=True),
            ),
        ]
        ordering: ClassVar = ["-last_seen"]

    def __str__(self) -> str:
        return self.title


class Failure(models.Model):
    """One failure of a run, or of a driver if `run` is null. [R]"""

    driver = models.ForeignKey("queries.Driver", on_delete=models.CASCADE, related_name="failures")
    run = models.ForeignKey(
        "queries.Run", null=True, on_delete=models.CASCADE, related_name="failures"
    )
    group = models.ForeignKey(FailureGroup, on_delete=models.CASCADE, related_name="failures")
    at = models.DateTimeField(db_index=True)
    category = models.CharField(max_length=40)  # failures.Category
    policy = models.CharField(max_length=8)
    error_class = models.CharField(max_length=200, default="")
    error_type = models.CharField(max_length=200, default="")
    root_cause = models.TextField(default="")
    message = models.TextField(default="")  # complete text, bounded
    batch = models.BigIntegerField(null=True)
    offsets = models.JSONField(default=dict)
    log_tail = models.TextField(default="")
    #: The version of the table of secrets with which the texts above were masked when stored;
    #: "" if by an earlier release.
    masked_with = models.CharField(max_length=8, default="", db_default="")
    conf = models.JSONField(default=dict)  # the application's, masked
    last_progress = models.JSONField(null=True)
    attempt = models.IntegerField(default=1)  # consecutive failures, including this one
    next_attempt_at = models.DateTimeField(null=True)

    class Meta:
        ordering: ClassVar = ["-at", "-pk"]

    def __str__(self) -> str:
        return self.error_class or self.error_type or "failure"

    def shown(self, text: str) -> str:
        """Return one of its strings, masked again if the secrets table has changed since."""
        return text if self.masked_with == TABLE else mask_text(text)


class Operation(models.Model):
    """A request by a user or by CI, tracked to its end."""

    uuid = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    verb = models.CharField(max_length=20)
    query = models.ForeignKey(  # null: an application's
        "queries.Query", null=True, on_delete=models.CASCADE, related_name="operations"
    )
    application = models.ForeignKey(  # null: of many queries, or of a host
        "queries.Application", null=True, on_delete=models.CASCADE, related_name="operations"
    )
    generation = models.BigIntegerField()  # DONE when it is reached
    actor = models.CharField(max_length=150)
    created_at = models.DateTimeField(db_index=True)
    deadline = models.DateTimeField()  # TIMED_OUT after it
    steps = models.JSONField(default=list)  # [{name, state, at, detail}] for those with several
    arguments = models.JSONField(default=dict)  # of the verb
    result = models.JSONField(default=dict)  # [R] what its steps found or made
    parent = models.ForeignKey(  # the operation with steps that requested it
        "self", null=True, on_delete=models.SET_NULL, related_name="children"
    )
    #: [R] where its steps run: its application's host, else that of its first step
    host = models.CharField(max_length=255, default="")
    leased_until = models.DateTimeField(null=True)  # [R] a worker is taking a step until then
    committed = models.BooleanField(default=False)  # [R] past its point of no return
    to_undo = models.BooleanField(default=False, db_index=True)  # [R] left something to clean up
    failure = models.ForeignKey(  # [R] which ended it
        "queries.Failure", null=True, on_delete=models.SET_NULL, related_name="+"
    )
    outcome = models.CharField(  # [R]
        max_length=12, default="", choices=[(o, o) for o in OperationOutcome], db_index=True
    )
    detail = BecauseField()  # [R] why it failed, or what it waits for
    ended_at = models.DateTimeField(null=True)  # [R]

    class Meta:
        ordering: ClassVar = ["-created_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.verb} {self.uuid}"

    @property
    def subject(self) -> str:
        """Return the name of its subject; "" for many queries, or a host."""
        about = self.query or self.application
        return about.name if about else ""

    @property
    def cancellable(self) -> bool:
        """Return whether it can still be cancelled.

        It must have steps, not have ended, and not have passed its point of no return.
        """
        return self.verb not in PLAIN_VERBS and not self.outcome and not self.committed


class Transition(models.Model):
    """One change of state: the states before and after, the reason, and the actor."""

    at = models.DateTimeField(db_index=True)
    application = models.ForeignKey(
        "queries.Application", on_delete=models.CASCADE, related_name="transitions"
    )
    query = models.ForeignKey(
        "queries.Query", null=True, on_delete=models.CASCADE, related_name="transitions"
    )
    driver = models.ForeignKey(
        "queries.Driver", null=True, on_delete=models.CASCADE, related_name="transitions"
    )
    run = models.ForeignKey(
        "queries.Run", null=True, on_delete=models.CASCADE, related_name="transitions"
    )
    subject = models.CharField(max_length=12)  # desired, phase, driver, definition or group
    before = models.CharField(max_length=40)
    after = models.CharField(max_length=40)
    reason = models.CharField(max_length=60)  # Reason
    detail = BecauseField()
    actor = models.CharField(max_length=150, default="")  # "" for supervision
    operation = models.ForeignKey(
        Operation, null=True, on_delete=models.SET_NULL, related_name="transitions"
    )

    class Meta:
        ordering: ClassVar = ["-at", "-pk"]

    def __str__(self) -> str:
        return f"{self.subject} {self.before} → {self.after}"

    @property
    def moved_from(self) -> str:
        """Return the previous state, or "" if there was none or it is unchanged.

        A restart of a query that should run leaves the desired state unchanged.
        """
        return "" if self.before == self.after else self.before
