"""Async progress tracking over REST: what a crash would replay, and how to turn it off safely."""

from typing import Any

from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.derived import Body, shows
from queries.api.methods import accepts, answers
from queries.models.history import Operation
from queries.roles import DEFINE
from queries.selectors.definitions import definitions
from queries.selectors.triggers.replay_exposure import Exposure, exposure
from queries.services.triggers.async_off import turn_off


@shows(
    Exposure,
    "interval_ms by_default kept kept_at missing newest running batches rows rows_in_flight "
    "rows_from seconds unreadable",
)
class ExposureBody(Body):
    """What a query would replay after a crash now; all null if every batch is saved.

    interval_ms: Offsets are saved at most this often.
    by_default: True if Spark enables it by default (real-time mode without state).
    kept: Batch that a start would continue after; null: the beginning.
    missing: Batch whose offsets Spark would miss if tracking were off.
    newest: Newest executed batch.
    running: Batch running now.
    batches: Executed or running, and to be replayed.
    rows: Of those batches.
    rows_in_flight: Of these rows, what the running batch may have written; null: unknown.
    rows_from: How the executed batches' rows were counted.
    seconds: Seconds of work since the last saved batch.
    unreadable: Why the checkpoint could not be read.
    """

    rows_from = serializers.ChoiceField(["offsets", "progress", ""])


class QueryExposureBody(Body):
    """Whether a query has async progress tracking, and the exposure it causes."""

    async_progress = serializers.BooleanField()
    exposure = ExposureBody(allow_null=True)


class QueryExposureView(ApiView):
    """What a crash now would replay."""

    @answers("get_query_exposure", QueryExposureBody)
    def get(self, name: str) -> dict[str, Any]:
        """Return what a crash now would replay; for queries with async progress tracking."""
        found = exposure(definitions.query(name), now=self.now)
        return {"async_progress": found is not None, "exposure": found}


class QueryAsyncOffView(ApiView):
    """The safe way to turn async progress tracking off."""

    @accepts("switch_async_progress_off", role=DEFINE)
    def post(self, name: str) -> Operation:
        """Turn async progress tracking off in steps; recover a query that failed on its gap."""
        return turn_off(query=definitions.query(name), **self.author)
