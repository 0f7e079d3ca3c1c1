"""What the API says of what was asked and what happened: operations, runs, failures."""

from typing import Any

from rest_framework import serializers

from queries.api.links import failure_links, group_links, operation_links, run_links
from queries.api.schema import ObjectField
from queries.domain.masking import mask, mask_text
from queries.domain.states import GroupStatus, OperationOutcome, Policy, StepState
from queries.models.drivers import Run
from queries.models.failures import Failure, FailureGroup
from queries.models.history import Operation
from queries.selectors.failures.what_changed import FailureDetail
from queries.selectors.supervision.runs import RunDetail

Body = serializers.Serializer[Any]


class MaskedText(serializers.CharField):
    """A text that came from a driver, without what looks like a secret."""

    def to_representation(self, value: Any) -> str:
        """Return the text, masked."""
        return mask_text(str(value))


class MaskedObject(ObjectField):
    """JSON that came from a driver, masked."""

    def to_representation(self, value: Any) -> Any:
        """Return the object, masked."""
        return mask(value)


class OutcomeField(serializers.ChoiceField):
    """How something ended; null while it has not."""

    def to_representation(self, value: Any) -> Any:
        """Return the outcome or None."""
        return value or None


class OperationStepBody(Body):
    """One step of an operation that has several."""

    name = serializers.CharField()
    state = serializers.ChoiceField([str(state) for state in StepState])
    at = serializers.CharField(allow_null=True)
    detail = MaskedText(default="", help_text="What it waits for, or why it failed.")


class OperationBody(Body):
    """An act of a person or of CI, followed to its end."""

    id = serializers.UUIDField(source="uuid")
    verb = serializers.CharField()
    query = serializers.CharField(source="query.name", allow_null=True, default=None)
    application = serializers.CharField(source="application.name")
    outcome = OutcomeField(
        [str(outcome) for outcome in OperationOutcome if outcome],
        allow_null=True,
        help_text="Null while it is in progress.",
    )
    detail = MaskedText()
    actor = serializers.CharField()
    created_at = serializers.DateTimeField()
    deadline = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    steps = OperationStepBody(many=True)
    arguments = MaskedObject(help_text="The arguments of the verb.")
    result = MaskedObject(help_text="The results of its steps.")
    parent = serializers.UUIDField(  # type: ignore[assignment]  # the metaclass takes it away
        source="parent.uuid",
        allow_null=True,
        default=None,
        help_text="The operation that started this one as a step.",
    )
    cancellable = serializers.SerializerMethodField(help_text="True before its point of no return.")
    links = serializers.SerializerMethodField()

    def get_cancellable(self, operation: Operation) -> bool:
        """Return whether it can be cancelled now."""
        return operation.cancellable

    def get_links(self, operation: Operation) -> dict[str, str]:
        """Return where to go on."""
        return operation_links(operation)


class OperationsBody(Body):
    """The operations that one request began."""

    results = OperationBody(many=True)


class ReplayedBody(Body):
    """What a run did again of the run before it, measured from offsets (async progress)."""

    batches = serializers.IntegerField(default=0)
    rows = serializers.IntegerField(default=0)
    seconds = serializers.FloatField(default=0.0, help_text="Seconds of work in the previous run.")
    first = serializers.IntegerField(allow_null=True, default=None)
    last = serializers.IntegerField(allow_null=True, default=None)
    after = serializers.IntegerField(
        allow_null=True, default=None, help_text="Batch after which it started."
    )


class RunBody(Body):
    """One start of a query inside a driver."""

    id = serializers.IntegerField(source="pk")
    query = serializers.CharField(source="query.name")
    application = serializers.CharField(source="driver.application.name")
    epoch = serializers.IntegerField()
    revision = serializers.IntegerField(source="revision.number")
    cause = serializers.CharField()
    actor = serializers.CharField()
    outcome = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    first_commit_at = serializers.DateTimeField(allow_null=True)
    ended_at = serializers.DateTimeField(allow_null=True)
    last_batch = serializers.IntegerField(allow_null=True)
    spark_run_id = serializers.CharField(allow_null=True)
    checkpoint = serializers.CharField(source="checkpoint.location")
    code_sha256 = serializers.CharField()
    warnings = serializers.ListField(child=serializers.CharField())
    replayed = ReplayedBody(allow_null=True, help_text="What it replayed; null if not measured.")
    driver = serializers.IntegerField(source="driver_id")
    driver_epoch = serializers.IntegerField(source="driver.epoch")
    host = serializers.CharField(source="driver.host")
    pid = serializers.IntegerField(source="driver.pid", allow_null=True)
    jvm_pid = serializers.IntegerField(source="driver.jvm_pid", allow_null=True)
    spark_version = serializers.CharField(source="driver.spark_version")
    java_version = serializers.CharField(source="driver.java_version")
    exit_python = serializers.CharField(source="driver.exit_python")
    exit_jvm = serializers.CharField(source="driver.exit_jvm")
    links = serializers.SerializerMethodField()

    def get_outcome(self, run: Run) -> str | None:
        """Return how the run ended, None while it has not."""
        return run.outcome or None

    def get_links(self, run: Run) -> dict[str, str]:
        """Return where to go on."""
        return run_links(run)


class BatchesBody(Body):
    """What a run's progress adds up to."""

    first = serializers.IntegerField(allow_null=True)
    last = serializers.IntegerField(allow_null=True)
    batches = serializers.IntegerField()
    rows = serializers.IntegerField()
    repaired = serializers.IntegerField()


class RunDetailBody(RunBody):
    """A run with its neighbours, its failures and the sum of its batches."""

    def to_representation(self, instance: RunDetail) -> dict[str, Any]:
        """Return the run's body and what was read beside it."""
        body: dict[str, Any] = RunBody(instance.run).data
        return {
            **body,
            "previous": instance.previous.pk if instance.previous else None,
            "next": instance.next.pk if instance.next else None,
            "failures": [failure.pk for failure in instance.failures],
            "batches": instance.summary and BatchesBody(instance.summary).data,
        }

    previous = serializers.IntegerField(allow_null=True)
    next = serializers.IntegerField(allow_null=True)
    failures = serializers.ListField(child=serializers.IntegerField())
    batches = BatchesBody(allow_null=True)


class FailureBody(Body):
    """One failure of a run, or of a driver where `run` is null."""

    id = serializers.IntegerField(source="pk")
    at = serializers.DateTimeField()
    query = serializers.CharField(source="run.query.name", allow_null=True, default=None)
    application = serializers.CharField(source="driver.application.name")
    run = serializers.IntegerField(source="run_id", allow_null=True)
    driver = serializers.IntegerField(source="driver_id")
    group = serializers.IntegerField(source="group_id")
    category = serializers.CharField()
    policy = serializers.ChoiceField([str(policy) for policy in Policy])
    error_class = serializers.CharField()
    error_type = serializers.CharField()
    root_cause = MaskedText()
    batch = serializers.IntegerField(allow_null=True)
    offsets = MaskedObject()
    attempt = serializers.IntegerField()
    next_attempt_at = serializers.DateTimeField(allow_null=True)
    links = serializers.SerializerMethodField()

    def get_links(self, failure: Failure) -> dict[str, str]:
        """Return where to go on."""
        return failure_links(failure)


class ChangeBody(Body):
    """One thing that differs between the last good run and the failed one."""

    what = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()
    spec_before = ObjectField(allow_null=True)
    spec_after = ObjectField(allow_null=True)


class ActBody(Body):
    """What a person or CI did."""

    at = serializers.DateTimeField()
    actor = serializers.CharField()
    subject = serializers.CharField()
    before = serializers.CharField()
    after = serializers.CharField()
    reason = serializers.CharField()


class FailureDetailBody(FailureBody):
    """A failure with its log tail and what changed since the last good run."""

    message = MaskedText()
    log_tail = MaskedText()
    last_progress = MaskedObject(allow_null=True)
    last_good_run = serializers.IntegerField(allow_null=True)
    changes = ChangeBody(many=True)
    acts = ActBody(many=True)

    def to_representation(self, instance: FailureDetail) -> dict[str, Any]:
        """Return the failure's body and what was read beside it."""
        failure = instance.failure
        body: dict[str, Any] = FailureBody(failure).data
        return {
            **body,
            "message": mask_text(failure.message),
            "log_tail": mask_text(failure.log_tail),
            "last_progress": mask(failure.last_progress),
            "last_good_run": instance.good.pk if instance.good else None,
            "changes": ChangeBody(instance.changes, many=True).data,
            "acts": ActBody(instance.acts, many=True).data,
        }


class FailureGroupBody(Body):
    """Failures of one query, or of one application's drivers, with one fingerprint."""

    id = serializers.IntegerField(source="pk")
    title = MaskedText()
    query = serializers.CharField(source="query.name", allow_null=True, default=None)
    application = serializers.CharField(source="application.name")
    status = serializers.ChoiceField([str(status) for status in GroupStatus])
    count = serializers.IntegerField()
    first_seen = serializers.DateTimeField()
    last_seen = serializers.DateTimeField()
    resolved_at = serializers.DateTimeField(allow_null=True)
    resolved_by = serializers.CharField()
    regressed_at = serializers.DateTimeField(allow_null=True)
    links = serializers.SerializerMethodField()

    def get_links(self, group: FailureGroup) -> dict[str, str]:
        """Return where to go on."""
        return group_links(group)


class ProgressRowBody(Body):
    """One executed batch as Spark reported it."""

    id = serializers.IntegerField()
    run = serializers.IntegerField()
    batch = serializers.IntegerField()
    at = serializers.DateTimeField()
    repaired = serializers.BooleanField(help_text="Filled in from the driver's memory.")
    progress = MaskedObject(help_text="Spark's own progress JSON.")
