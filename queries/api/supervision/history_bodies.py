"""Response bodies for history: operations, runs, failures."""

from typing import Any

from rest_framework import serializers

from headgate_ground.masking import mask
from queries.api.derived import Body, described, serializer_for
from queries.api.links import failure_links, group_links, run_links
from queries.api.operation_bodies import MaskedText
from queries.api.reasons import PhraseField
from queries.api.schema import MaskedObject, ObjectField
from queries.domain.states import Candidacy, GroupStatus, Policy
from queries.models.drivers import Run
from queries.models.failures import Failure, FailureGroup
from queries.models.history import Transition
from queries.selectors.failures.what_changed import ConfigurationDifference, FailureDetail
from queries.selectors.supervision.runs import RunDetail
from queries.services.failures.driver_logs import mask_failure


@described
class ReplayedBody(Body):
    """The work of the previous run that a run repeated, measured from offsets (async progress).

    rows: Number of rows; if a batch was interrupted, an upper bound.
    rows_in_flight: Rows of the interrupted batch; null: unknown.
    seconds: Seconds of work in the previous run, in the batches that ended.
    after: The batch after which the run started.
    """

    batches = serializers.IntegerField(default=0)
    rows = serializers.IntegerField(default=0)
    rows_in_flight = serializers.IntegerField(allow_null=True, default=0)
    seconds = serializers.FloatField(default=0.0)
    first = serializers.IntegerField(allow_null=True, default=None)
    last = serializers.IntegerField(allow_null=True, default=None)
    after = serializers.IntegerField(allow_null=True, default=None)


@serializer_for(
    Run,
    "id=pk query=query.name application=driver.application.name epoch "
    "revision=revision.number cause cause_code=cause actor outcome created_at started_at "
    "first_commit_at ended_at last_batch spark_run_id checkpoint=checkpoint.location "
    "code_sha256 code packages params warnings replayed driver=driver_id driver_epoch=driver.epoch "
    "driver.host driver.pid "
    "driver.jvm_pid driver.spark_version driver.java_version driver.exit_python "
    "driver.exit_jvm links",
    links=run_links,
)
class RunBody(Body):
    """One start of a query inside a driver.

    replayed: The work that it repeated; null if not measured.
    code: An upload or a git commit, as in the definition; null: folders on the host.
    packages: The requirements from which its packages were installed.
    params: The values of its parameters; null: not recorded.
    """

    code = ObjectField(
        source="driver.application_revision.spec.code", default=None, allow_null=True
    )
    packages = serializers.CharField(source="driver.application_revision.spec.packages", default="")
    params = MaskedObject(allow_null=True)
    cause = PhraseField()
    warnings = serializers.ListField(child=MaskedText())
    replayed = ReplayedBody(allow_null=True)

    def get_outcome(self, run: Run) -> str | None:
        """Return how the run ended; None while it is open."""
        return run.outcome or None


@described
class BatchesBody(Body):
    """Totals of a run's progress.

    rows: Number of rows read.
    rows_written: Number of rows written, if the query ends by itself (available_now, once) and its
    sink reports them; otherwise null. File sinks and foreachBatch do not.
    """

    first = serializers.IntegerField(allow_null=True)
    last = serializers.IntegerField(allow_null=True)
    batches = serializers.IntegerField()
    rows = serializers.IntegerField()
    rows_written = serializers.IntegerField(allow_null=True)
    repaired = serializers.IntegerField()


class RunDetailBody(RunBody):
    """A run with its failures, its batch totals, and the runs before and after it."""

    def to_representation(self, instance: RunDetail) -> dict[str, Any]:
        """Return the run's body with the additional data."""
        body: dict[str, Any] = RunBody(instance.run).data
        return {
            **body,
            "previous": instance.previous.pk if instance.previous else None,
            "next": instance.next.pk if instance.next else None,
            "failures": [failure.pk for failure in instance.failures],
            "batches": instance.summary
            and BatchesBody({**instance.summary, "rows_written": instance.written}).data,
        }

    previous = serializers.IntegerField(allow_null=True)
    next = serializers.IntegerField(allow_null=True)
    failures = serializers.ListField(child=serializers.IntegerField())
    batches = BatchesBody(allow_null=True)


class MaskedCause(serializers.CharField):
    """A failure's root cause, masked again only if the table has changed since it was stored."""

    def get_attribute(self, instance: Failure) -> str:
        """Return the text."""
        return instance.shown(instance.root_cause)


@serializer_for(
    Failure,
    "id=pk at query=run.query.name application=driver.application.name run=run_id "
    "driver=driver_id group=group_id category policy error_class error_type root_cause "
    "batch offsets attempt next_attempt_at links",
    policy=Policy,
    links=failure_links,
)
class FailureBody(Body):
    """One failure of a run, or of a driver if `run` is null."""

    root_cause = MaskedCause()
    offsets = MaskedObject()


@serializer_for(ConfigurationDifference, "what before after spec_before spec_after")
class ChangeBody(Body):
    """One difference between the last good run and the failed run."""


@serializer_for(Transition, "at actor subject before after reason reason_code=reason")
class ActBody(Body):
    """An action by a user or by CI."""

    reason = PhraseField()


@described
class CandidateBody(Body):
    """A query that may have killed its shared driver.

    was: What it was doing when the driver died.
    batch: The batch in flight at that moment; null if there was none or it is unknown.
    unknown_because: "Unknown, because …" for `UNKNOWN`; else empty.
    """

    query = serializers.CharField()
    run = serializers.IntegerField(source="run.pk")
    was = serializers.ChoiceField([str(was) for was in Candidacy if was])
    batch = serializers.IntegerField(allow_null=True)
    unknown_because = serializers.CharField()


@described
class FailureDetailBody(FailureBody):
    """A failure with its log tail and the changes since the last good run.

    candidates: For a shared driver's death: the queries that may have caused it.
    culprit: The query held because it killed the driver; null if none is known.
    """

    message = MaskedText()
    log_tail = MaskedText()
    last_progress = MaskedObject(allow_null=True)
    last_good_run = serializers.IntegerField(allow_null=True)
    changes = ChangeBody(many=True)
    acts = ActBody(many=True)
    candidates = CandidateBody(many=True)
    culprit = serializers.CharField(allow_null=True)

    def to_representation(self, instance: FailureDetail) -> dict[str, Any]:
        """Return the failure's body with the additional data."""
        failure = mask_failure(instance.failure)
        body: dict[str, Any] = FailureBody(failure).data
        death = instance.death
        culprit = death.culprit if death else None
        return {
            **body,
            "message": failure.message,
            "log_tail": failure.log_tail,
            "last_progress": mask(failure.last_progress),
            "last_good_run": instance.good.pk if instance.good else None,
            "changes": ChangeBody(instance.changes, many=True).data,
            "acts": ActBody(instance.acts, many=True).data,
            "candidates": CandidateBody(death.candidates if death else [], many=True).data,
            "culprit": culprit.run.query.name if culprit and culprit.run else None,
        }


@serializer_for(
    FailureGroup,
    "id=pk title query=query.name application=application.name status count first_seen "
    "last_seen resolved_at resolved_by regressed_at links",
    status=GroupStatus,
    links=group_links,
)
class FailureGroupBody(Body):
    """Failures of one query, or of one application's drivers, with the same fingerprint."""

    title = MaskedText()


@described
class ProgressRowBody(Body):
    """One executed batch as Spark reported it.

    repaired: Whether it was recovered from the driver's memory.
    progress: Spark's own progress JSON.
    """

    id = serializers.IntegerField()
    run = serializers.IntegerField()
    batch = serializers.IntegerField()
    at = serializers.DateTimeField()
    repaired = serializers.BooleanField()
    progress = MaskedObject()
