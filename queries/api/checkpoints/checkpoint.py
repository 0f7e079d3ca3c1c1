"""A query's checkpoint over REST: its batches, its snapshots, and the acts on it."""

from typing import Any, ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from queries.api.base import ApiView
from queries.api.checkpoints import checkpoint_bodies as bodies
from queries.api.errors import invalid
from queries.api.paging import PAGING, Key, page, page_of_rows
from queries.api.schema import describe, listed
from queries.api.supervision.history_bodies import OperationBody
from queries.api.supervision.operations import accepted
from queries.checkpoints import batches
from queries.domain.errors import Missing
from queries.models.checkpoints import Snapshot
from queries.models.definitions import Query
from queries.roles import DEFINE, OPERATE
from queries.selectors import checkpoints as reads
from queries.selectors.definitions.definitions import query as query_of
from queries.services.checkpoints import clone, reset, rewind, snapshot
from queries.services.checkpoints.preview import preview_reset, preview_rewind
from queries.services.checkpoints.source_starts import Wish
from queries.services.checkpoints.switching import current


class QueryBatchesView(ApiView):
    """The batches of a query's checkpoint."""

    @describe(
        operation_id="list_query_batches", parameters=PAGING, responses=listed(bodies.BatchBody)
    )
    def get(self, request: Request, name: str) -> Response:
        """List the batches in the checkpoint's logs, newest first."""
        logs = snapshot.local_logs(current(query_of(name)).location)

        def fetch(after: Key | None, count: int) -> list[batches.Batch]:
            return batches.page(logs, before=int(after[0]) if after else None, limit=count)

        return page(
            request, fetch, lambda row: [row.number], lambda row: bodies.BatchBody(row).data
        )


class QuerySnapshotsView(ApiView):
    """The snapshots of a query's checkpoints."""

    permissions: ClassVar[dict[str, str]] = {"POST": OPERATE}

    @describe(
        operation_id="list_query_snapshots",
        parameters=PAGING,
        responses=listed(bodies.SnapshotBody),
    )
    def get(self, request: Request, name: str) -> Response:
        """List the snapshots, newest first."""
        rows = reads.snapshots_of(query_of(name))
        return page_of_rows(request, rows, lambda row: bodies.SnapshotBody(row).data)

    @describe(
        operation_id="take_query_snapshot",
        request=bodies.SnapshotForm,
        responses={202: OperationBody},
    )
    def post(self, request: Request, name: str) -> Response:
        """Take a snapshot of the checkpoint as of a batch, by default the newest."""
        sent = self.read(bodies.SnapshotForm, request.data or {})
        return accepted(
            snapshot.request_snapshot(query=query_of(name), actor=self.actor, now=self.now, **sent)
        )


class QuerySnapshotView(ApiView):
    """One snapshot."""

    permissions: ClassVar[dict[str, str]] = {"PATCH": OPERATE, "DELETE": OPERATE}

    @describe(operation_id="read_query_snapshot", responses=bodies.SnapshotBody)
    def get(self, request: Request, name: str, number: int) -> Response:
        """Return a snapshot."""
        return Response(bodies.SnapshotBody(_snapshot(query_of(name), number)).data)

    @describe(
        operation_id="pin_query_snapshot",
        request=bodies.SnapshotChange,
        responses=bodies.SnapshotBody,
    )
    def patch(self, request: Request, name: str, number: int) -> Response:
        """Pin a snapshot, so that it is kept when newer ones are taken, or unpin it."""
        row = _snapshot(query_of(name), number)
        snapshot.pin(row, pinned=self.read(bodies.SnapshotChange, request.data)["pinned"])
        row.refresh_from_db()
        return Response(bodies.SnapshotBody(row).data)

    @describe(operation_id="remove_query_snapshot", responses={204: None})
    def delete(self, request: Request, name: str, number: int) -> Response:
        """Delete a snapshot's files permanently. A pinned one is refused."""
        snapshot.remove_snapshot(_snapshot(query_of(name), number), now=self.now)
        return Response(status=204)


class QueryRewindView(ApiView):
    """The verb rewind."""

    permissions: ClassVar[dict[str, str]] = {"POST": DEFINE}

    @describe(
        operation_id="rewind_query",
        request=bodies.RewindForm,
        responses={200: bodies.PreviewBody, 202: OperationBody},
    )
    def post(self, request: Request, name: str) -> Response:
        """Continue after an earlier batch, in a new directory; `dry_run` returns a preview."""
        sent = self.read(bodies.RewindForm, request.data)
        query = query_of(name)
        if sent["dry_run"]:
            return Response(bodies.PreviewBody(preview_rewind(query, sent["batch"])).data)
        return accepted(
            rewind.request_rewind(query=query, batch=sent["batch"], actor=self.actor, now=self.now)
        )


class QueryResetView(ApiView):
    """The verb reset."""

    permissions: ClassVar[dict[str, str]] = {"POST": DEFINE}

    @describe(
        operation_id="reset_query",
        request=bodies.ResetForm,
        responses={200: bodies.PreviewBody, 202: OperationBody},
    )
    def post(self, request: Request, name: str) -> Response:
        """Start the sources elsewhere, without state; `dry_run` returns a preview."""
        sent = self.read(bodies.ResetForm, request.data)
        query = query_of(name)
        wish = Wish(sent["to"], sent["at"], _offsets(sent["offsets"]))
        if sent["dry_run"]:
            return Response(bodies.PreviewBody(preview_reset(query, wish)).data)
        return accepted(reset.request_reset(query=query, wish=wish, actor=self.actor, now=self.now))


class QueryCloneView(ApiView):
    """The verb clone."""

    permissions: ClassVar[dict[str, str]] = {"POST": DEFINE}

    @describe(operation_id="clone_query", request=bodies.CloneForm, responses={202: OperationBody})
    def post(self, request: Request, name: str) -> Response:
        """Create a query that continues from this one's checkpoint; it is created stopped."""
        sent = self.read(bodies.CloneForm, request.data)
        snapshot_id = sent.pop("snapshot")
        if sent["sink"] is not None and not isinstance(sent["sink"], dict):
            raise invalid("sink", sent["sink"], "is not a JSON object.")
        return accepted(
            clone.request_clone(
                query=query_of(name),
                snapshot_id=snapshot_id,
                actor=self.actor,
                now=self.now,
                **sent,
            )
        )


def _snapshot(query: Query, number: int) -> Snapshot:
    row = reads.snapshots_of(query).filter(pk=number).first() if number < 2**62 else None
    if row is None:
        raise Missing(f"{query.name} has no snapshot {number}.")
    return row


def _offsets(given: Any) -> dict[str, dict[str, int]]:
    """Return offsets as they are meant; raise `Invalid` for any other form."""
    try:
        found = {
            str(topic): {str(int(number)): int(at) for number, at in parts.items()}
            for topic, parts in given.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise invalid(
            "offsets", given, "is not a set of offsets.", 'Write {"flights": {"0": 1200}}.'
        ) from error
    if any(abs(at) > 2**62 for parts in found.values() for at in parts.values()):
        raise invalid("offsets", given, "contains an offset that no partition can have.")
    return found
