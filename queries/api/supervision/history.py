"""Runs with their logs, failures and their groups, checkpoints, with their response bodies."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework import serializers

from headgate_ground.masking import mask
from queries.api.base import ApiView
from queries.api.bodies import (
    Body,
    MaskedText,
    PhraseField,
    described,
    failure_links,
    group_links,
    run_links,
    serializer_for,
)
from queries.api.definitions.bodies import CheckpointBody, DriverBody
from queries.api.methods import Nothing, answers, flag, lists, whole, whole_number, word
from queries.api.schema import MaskedObject, ObjectField
from queries.domain.access import Act
from queries.domain.states import Candidacy, GroupStatus, Policy
from queries.launchers.configured import launcher
from queries.models.definitions import Checkpoint
from queries.models.drivers import Driver, Run
from queries.models.history import Failure, FailureGroup, Transition
from queries.roles import OPERATE
from queries.selectors import checkpoints
from queries.selectors.failures import failures
from queries.selectors.failures.what_changed import (
    ConfigurationDifference,
    FailureDetail,
    failure_with_changes,
)
from queries.selectors.supervision import history
from queries.selectors.supervision.applications import application, driver_of, drivers_of
from queries.selectors.supervision.history import RunDetail
from queries.services import failures as resolution
from queries.services.access.audit import record_act
from queries.services.failures import MOST_LINES, mask_failure, read_log


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

    rows: Number of rows read. rows_written: Number of rows written, if the query ends on its own
    (available_now, once) and its sink reports them; otherwise null. File sinks and foreachBatch do
    not.
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
    culprit: The query on hold because it killed the driver; null if none is known.
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


class RunView(ApiView):
    """One run."""

    @answers("get_run", RunDetailBody)
    def get(self, run_id: int) -> history.RunDetail:
        """Return a run with its failures, its batch totals, and the runs before and after it."""
        return history.run_with_neighbours(run_id=run_id)


class RunLogView(ApiView):
    """The log of a run's driver."""

    @answers(
        "get_run_log",
        None,
        parameters=[whole("tail", 200, low=1, high=MOST_LINES, about="Number of lines.")],
        responses={(200, "text/plain"): OpenApiTypes.STR},
    )
    def get(self, run_id: int) -> HttpResponse:
        """Return the end of the driver's log as text, with secrets masked."""
        lines = whole_number(self.request, "tail", 200, low=1, high=MOST_LINES)
        run = history.run_with_neighbours(run_id=run_id).run
        return _log(self, run.driver, run.query.name, lines)


def _log(view: ApiView, driver: Driver, subject: str, lines: int) -> HttpResponse:
    """Return the end of a driver's log, and record that the user has read it."""
    text = read_log(driver, launcher=launcher(), lines=lines)
    record_act(Act.EXPORTED, subject=subject, what="log", driver=driver.epoch, **view.by)
    return HttpResponse(text, content_type="text/plain; charset=utf-8")


class DriversView(ApiView):
    """An application's drivers."""

    @lists("list_drivers", DriverBody, by="epoch")
    def get(self, name: str) -> QuerySet[Driver]:
        """List an application's drivers, including ended ones, newest first."""
        return drivers_of(application(name))


class DriverLogView(ApiView):
    """The log of a driver."""

    @answers(
        "get_driver_log",
        None,
        parameters=[whole("tail", 200, low=1, high=MOST_LINES, about="Number of lines.")],
        responses={(200, "text/plain"): OpenApiTypes.STR},
    )
    def get(self, name: str, epoch: int) -> HttpResponse:
        """Return the end of the log of one of an application's drivers, with secrets masked."""
        lines = whole_number(self.request, "tail", 200, low=1, high=MOST_LINES)
        return _log(self, driver_of(application(name), epoch), name, lines)


class FailureView(ApiView):
    """One failure."""

    @answers("get_failure", FailureDetailBody)
    def get(self, failure_id: int) -> FailureDetail:
        """Return a failure with its log tail and the changes since the last good run."""
        return failure_with_changes(failure_id)


class FailureGroupsView(ApiView):
    """All failure groups."""

    @lists(
        "list_failure_groups",
        FailureGroupBody,
        by="last_seen pk",
        parameters=[word("status", GroupStatus), *map(word, ("query", "application", "search"))],
    )
    def get(self) -> QuerySet[FailureGroup]:
        """List failure groups, most recently seen first."""
        self.choice_params("status", GroupStatus) if self.query_param("status") else None
        filters = {
            name: self.query_param(name) for name in ("status", "query", "application", "search")
        }
        return failures.failure_groups(**filters)


class FailureGroupView(ApiView):
    """One failure group."""

    @answers("get_failure_group", FailureGroupBody)
    def get(self, group_id: int) -> FailureGroup:
        """Return a group."""
        return failures.failure_group(group_id)


class FailureGroupFailuresView(ApiView):
    """The failures in a group."""

    @lists("list_failures_of_group", FailureBody)
    def get(self, group_id: int) -> QuerySet[Failure]:
        """List the group's failures, newest first."""
        return failures.failures().filter(group=failures.failure_group(group_id))


class FailureGroupResolveView(ApiView):
    """The `resolve` verb."""

    @answers("resolve_failure_group", FailureGroupBody, role=OPERATE, form=Nothing)
    def post(self, group_id: int) -> FailureGroup:
        """Mark a group as resolved; its next failure reopens it."""
        resolution.resolve_group(group=failures.failure_group(group_id), **self.by)
        return failures.failure_group(group_id)


class FailureGroupReopenView(ApiView):
    """The `reopen` verb."""

    @answers("reopen_failure_group", FailureGroupBody, role=OPERATE, form=Nothing)
    def post(self, group_id: int) -> FailureGroup:
        """Mark a group as open again."""
        resolution.reopen_group(group=failures.failure_group(group_id), **self.by)
        return failures.failure_group(group_id)


class CheckpointsView(ApiView):
    """All checkpoints."""

    @lists(
        "list_checkpoints",
        CheckpointBody,
        parameters=[word("query"), flag("held", "In use, or retired.")],
    )
    def get(self) -> QuerySet[Checkpoint]:
        """List checkpoints, newest first, each with its holder and newest run."""
        rows = checkpoints.checkpoints()
        if name := self.query_param("query"):
            rows = rows.filter(query__name=name)
        if (in_use := self.boolean_param("held")) is not None:
            rows = rows.filter(retired_at__isnull=in_use)
        return rows
