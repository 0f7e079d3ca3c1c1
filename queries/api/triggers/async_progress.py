"""Async progress tracking over REST: what a crash would replay, and how to turn it off safely."""

from typing import Any

from rest_framework import serializers

from queries.api.base import ApiView
from queries.api.derived import Body, serializer_for
from queries.api.methods import accepts, answers
from queries.models.history import Operation
from queries.roles import DEFINE
from queries.selectors.definitions import definitions
from queries.selectors.triggers.replay_exposure import Exposure, exposure
from queries.services.triggers.async_off import request_async_off


@serializer_for(
    Exposure,
    "interval_ms by_default kept kept_at missing newest running batches rows rows_in_flight "
    "rows_from seconds unreadable seen_at",
)
class ExposureBody(Body):
    """What a query would replay after a crash now; all null if every batch is saved.

    interval_ms: Minimum time between saves of the offsets.
    by_default: True if Spark enables it by default (real-time mode without state).
    kept: The batch after which a start would continue; null for the beginning.
    missing: The batch whose offsets Spark would not find if tracking were turned off.
    newest: The newest executed batch.
    running: The batch that is running now.
    batches: Number of executed or running batches that would be replayed.
    rows: Number of rows in those batches.
    rows_in_flight: Those rows that the running batch may have written; null if unknown.
    rows_from: How the executed batches' rows were counted.
    seconds: Seconds of work since the last saved batch.
    unreadable: "Unknown, because …": why the checkpoint's logs are unknown; else empty.
    seen_at: When the driver read the checkpoint's logs; null if they were read for this answer.
    """

    rows_from = serializers.ChoiceField(["offsets", "progress", ""])


class QueryExposureBody(Body):
    """Whether a query uses async progress tracking, and what a crash would therefore replay."""

    async_progress = serializers.BooleanField()
    exposure = ExposureBody(allow_null=True)


class QueryExposureView(ApiView):
    """What a query would replay after a crash now."""

    @answers("get_query_exposure", QueryExposureBody)
    def get(self, name: str) -> dict[str, Any]:
        """Return what a query with async progress tracking would replay after a crash now."""
        replay = exposure(definitions.query(name), now=self.now)
        return {"async_progress": replay is not None, "exposure": replay}


class QueryAsyncOffView(ApiView):
    """The safe way to turn async progress tracking off."""

    @accepts("switch_async_progress_off", role=DEFINE)
    def post(self, name: str) -> Operation:
        """Turn async progress tracking off in steps; also recovers a query that failed on a gap."""
        return request_async_off(query=definitions.query(name), **self.author)
