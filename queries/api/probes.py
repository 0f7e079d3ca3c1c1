"""Preflights and state inspections over REST: try definitions, inspect state."""

from typing import Any
from uuid import UUID

from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.bodies import Body, described
from queries.api.definitions.changes import QueryReplace
from queries.api.methods import Sent, accepts, answers
from queries.api.schema import ObjectField, QuerySpecField
from queries.domain.errors import Forbidden, Missing
from queries.domain.sparks import SPARKS
from queries.domain.states import Verb
from queries.launchers.configured import launcher
from queries.models.history import Operation
from queries.roles import DEFINE, may
from queries.selectors.definitions import definitions
from queries.selectors.supervision import history
from queries.services.probes import inspections
from queries.services.probes.preflight import begin_preflight
from queries.services.probes.probe_steps import MOST_ROWS, ROWS


@described
class Preflight(QueryReplace):
    """A definition to test, in the same form as in a PUT.

    spec: Null, the default, for the newest revision. spark: The Spark version for the test; null,
    the default, means the application's.
    """

    spec = QuerySpecField(required=False, default=None)
    spark = serializers.ChoiceField(SPARKS, allow_null=True, default=None)


@described
class XrayForm(serializers.Serializer[Any]):
    """Which state to read, and how much of it to show.

    side: For a stream-stream join. variable: For transformWithState: the state variable. contains:
    Only groups whose key, written as JSON, contains this string. snapshot: The snapshot to read; by
    default, the current state.
    """

    operator = serializers.IntegerField(default=0, min_value=0, max_value=1000)
    store = serializers.CharField(default="default", max_length=100)
    side = serializers.ChoiceField(["", "left", "right"], default="")
    variable = serializers.CharField(default="", allow_blank=True, max_length=200)
    contains = serializers.CharField(default="", allow_blank=True, max_length=200)
    rows = serializers.IntegerField(default=ROWS, min_value=1, max_value=MOST_ROWS)
    snapshot = serializers.IntegerField(default=None, allow_null=True, min_value=1)


@described
class XrayBody(Body):
    """The result of a state inspection: figures for all groups, and a few rows.

    taken_at: When the inspection ended; a running query has changed the state since.
    rows: Number of groups that pass the filter.
    bytes: Size of their keys and values as JSON.
    largest: Keys with the most rows or bytes.
    frequent: For each key column: approximate number of values, and the most frequent.
    """

    taken_at = serializers.DateTimeField()
    operators = serializers.ListField(child=ObjectField())
    operator = serializers.IntegerField()
    rows = serializers.IntegerField()
    bytes = serializers.IntegerField()
    partitions = serializers.ListField(child=ObjectField())
    largest = serializers.ListField(child=ObjectField())
    frequent = serializers.ListField(child=ObjectField())
    sample = serializers.ListField(child=ObjectField())


@described
class RecordsForm(serializers.Serializer[Any]):
    """The batch to inspect.

    rows: Records shown per source.
    """

    batch = serializers.IntegerField(min_value=0)
    rows = serializers.IntegerField(default=ROWS, min_value=1, max_value=MOST_ROWS)


@described
class RecordsBody(Body):
    """Records that a batch read, and the first one on which the query's SQL fails.

    sources: For each source, the number of examined records, and some of them as JSON.
    searched: Whether the search finished in time.
    failing: Source, number and error of that record; null if no single record fails.
    hot: The keys of its grouping with the most rows, among a sample; null without a grouping.
    """

    sources = serializers.ListField(child=ObjectField())
    searched = serializers.BooleanField()
    failing = ObjectField(allow_null=True)
    hot = ObjectField(allow_null=True)


class QueryPreflightView(ApiView):
    """The `preflight` verb."""

    @accepts("preflight_query", form=Preflight, request={"application/json": Preflight})
    def post(self, sent: Sent, name: str) -> Operation:
        """Try a definition on a copy of the checkpoint before it replaces the current definition.

        DONE if it passes, FAILED if it does not; `result.preflight` has the details. Trying another
        definition, or another Spark, requires an author; trying the newest revision requires an
        operator.
        """
        spec, query = sent.get("spec"), definitions.query(name)
        spark = sent.get("spark")
        own = spec is not None or spark is not None
        if own and not may(self.request.user, DEFINE, query.application):
            raise Forbidden(
                "Only authors can run a preflight of an unsaved definition or with a chosen Spark.",
                way_out="Omit spec and spark to run a preflight of the newest revision.",
            )
        return begin_preflight(query=query, spec=spec, spark=spark, **self.author)


class QueryXrayView(ApiView):
    """The `x-ray` verb."""

    @accepts("x_ray_query", role=DEFINE, form=XrayForm)
    def post(self, sent: Sent, name: str) -> Operation:
        """Read a state operator's rows from a copy; poll the operation until it ends."""
        return inspections.begin_xray(query=definitions.query(name), **sent, **self.by)


class QueryRecordsView(ApiView):
    """The `records` verb."""

    @accepts("look_at_records", role=DEFINE, form=RecordsForm)
    def post(self, sent: Sent, name: str) -> Operation:
        """Reread the records of a batch, and find the failing one."""
        return inspections.begin_records(query=definitions.query(name), **sent, **self.by)


class QueryBatchRecordsView(ApiView):
    """The records of a batch."""

    @answers("get_records", RecordsBody, role=DEFINE)
    def get(self, name: str, uuid: UUID) -> Any:
        """Return the records, for one hour after the operation has ended."""
        operation = history.operation(uuid)
        if operation.query != definitions.query(name) or operation.verb != Verb.RECORDS:
            raise Missing(f"{name} has no records {uuid}.")
        records = inspections.records_of(operation, launcher=launcher(), now=self.now)
        if records is None:
            raise _expired_error()
        return records


class QueryXrayRowsView(ApiView):
    """The rows read by a state inspection."""

    @answers("get_x_ray", XrayBody, role=DEFINE)
    def get(self, name: str, uuid: UUID) -> Any:
        """Return the rows of a finished state inspection, for one hour after it has ended."""
        operation = history.operation(uuid)
        if operation.query != definitions.query(name) or operation.verb != Verb.XRAY:
            raise Missing(f"{name} has no state inspection {uuid}.")
        rows = inspections.rows_of(operation, launcher=launcher(), now=self.now)
        if rows is None:
            raise _expired_error()
        return {**rows, "taken_at": operation.ended_at}


def _expired_error() -> Missing:
    return Missing(
        "Its rows are not available: it has not ended, it failed, or it ended more than an "
        "hour ago.",
        way_out="Request a new one.",
    )
