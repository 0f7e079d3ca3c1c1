"""A query's checkpoint over REST: its batches, its snapshots, and actions on it."""

from django.db.models import QuerySet
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.checkpoints import checkpoint_bodies as bodies
from queries.api.methods import Sent, accepts, answers, lists
from queries.api.operation_bodies import OperationBody
from queries.api.paging import Key, page
from queries.checkpoints import batches
from queries.models.checkpoints import Snapshot
from queries.models.history import Operation
from queries.roles import DEFINE, OPERATE
from queries.selectors import checkpoints as reads
from queries.selectors.access.teams import insist_clone
from queries.selectors.definitions.definitions import query as query_of
from queries.selectors.hosts import read_at_of
from queries.services.checkpoints import clone, remote, reset, rewind, snapshot
from queries.services.checkpoints.preview import preview_clone, preview_reset, preview_rewind
from queries.services.checkpoints.source_starts import WantedStart, offsets_of
from queries.services.checkpoints.switching import current


class QueryBatchesView(ApiView):
    """The batches in a query's checkpoint."""

    @lists("list_query_batches", bodies.BatchBody)
    def get(self, name: str) -> Response:
        """List the batches in the checkpoint's logs, newest first."""
        location = current(query_of(name)).location
        logs = remote.readable_logs(location, fresh_for=None)
        read_at = read_at_of(location) or self.now

        def fetch(after: Key | None, count: int) -> list[bodies.ReadBatch]:
            page_rows = batches.page(logs, before=int(after[0]) if after else None, limit=count)
            return [bodies.ReadBatch(batch, read_at) for batch in page_rows]

        return page(self.request, fetch, lambda row: [row.batch.number], bodies.BatchBody)


class QuerySnapshotsView(ApiView):
    """The snapshots of a query's checkpoints."""

    @lists("list_query_snapshots", bodies.SnapshotBody)
    def get(self, name: str) -> QuerySet[Snapshot]:
        """List the snapshots, newest first."""
        return reads.snapshots_of(query_of(name))

    @accepts("take_query_snapshot", form=bodies.SnapshotForm)
    def post(self, sent: Sent, name: str) -> Operation:
        """Take a snapshot of the checkpoint as of a batch (by default the newest)."""
        return snapshot.request_snapshot(query=query_of(name), **sent, **self.by)


class QuerySnapshotView(ApiView):
    """One snapshot."""

    @answers("read_query_snapshot", bodies.SnapshotBody)
    def get(self, name: str, number: int) -> Snapshot:
        """Return a snapshot."""
        return reads.snapshot_of(query_of(name), number)

    @answers("pin_query_snapshot", bodies.SnapshotBody, role=OPERATE, form=bodies.SnapshotChange)
    def patch(self, sent: Sent, name: str, number: int) -> Snapshot:
        """Pin a snapshot so that it is not removed automatically, or unpin it."""
        row = reads.snapshot_of(query_of(name), number)
        snapshot.pin(row, **sent)
        row.refresh_from_db()
        return row

    @answers("remove_query_snapshot", None, role=OPERATE)
    def delete(self, name: str, number: int) -> None:
        """Delete a snapshot's files permanently; pinned snapshots cannot be deleted."""
        snapshot.remove_snapshot(reads.snapshot_of(query_of(name), number), now=self.now)


#: An action with a preview: the preview, or the operation.
_TRIED = {200: bodies.PreviewBody, 202: OperationBody}


class QueryRewindView(ApiView):
    """The `rewind` verb."""

    @accepts("rewind_query", role=DEFINE, form=bodies.RewindForm, responses=_TRIED)
    def post(self, sent: Sent, name: str) -> Operation | Response:
        """Continue after an earlier batch, in a new directory; `dry_run` only returns a preview."""
        query, batch = query_of(name), sent["batch"]
        if sent["dry_run"]:
            return Response(bodies.PreviewBody(preview_rewind(query, batch)).data)
        return rewind.request_rewind(query=query, batch=batch, **self.by)


class QueryResetView(ApiView):
    """The `reset` verb."""

    @accepts("reset_query", role=DEFINE, form=bodies.ResetForm, responses=_TRIED)
    def post(self, sent: Sent, name: str) -> Operation | Response:
        """Start the sources elsewhere, without state; `dry_run` only returns a preview."""
        query = query_of(name)
        wish = WantedStart(sent["to"], sent["at"], offsets_of(sent["offsets"]))
        if sent["dry_run"]:
            return Response(bodies.PreviewBody(preview_reset(query, wish)).data)
        return reset.request_reset(query=query, wish=wish, **self.by)


class QueryCloneView(ApiView):
    """The `clone` verb."""

    @accepts("clone_query", role=DEFINE, form=bodies.CloneForm, responses=_TRIED)
    def post(self, sent: Sent, name: str) -> Operation | Response:
        """Create a stopped query from this query's checkpoint; `dry_run` only returns a preview."""
        if sent.pop("dry_run"):
            same, batch = sent["same_sink"] and sent["sink"] is None, sent["batch"]
            return Response(
                bodies.PreviewBody(preview_clone(query_of(name), same_sink=same, batch=batch)).data
            )
        sent["snapshot_id"] = sent.pop("snapshot")
        insist_clone(self.request.user, sent["application"])
        return clone.request_clone(query=query_of(name), **sent, **self.author)
