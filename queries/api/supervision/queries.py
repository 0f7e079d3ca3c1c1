"""Queries: their list, each of them, its verbs, and its history."""

from functools import partial
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.response import Response

from headgate_ground.tolerant import whole
from listeners import selectors as heard
from queries.api.base import ApiView
from queries.api.definitions import changes
from queries.api.definitions.bodies import QueryBody, QueryRevisionBody
from queries.api.errors import invalid
from queries.api.methods import Key, Sent, accepts, answers, creates, lists, page, word
from queries.api.supervision.history import FailureBody, ProgressRowBody, RunBody
from queries.domain.definitions.labels import parse_filters
from queries.domain.states import Desired, Phase, StopMode, Verdict
from queries.domain.validation.params import from_text
from queries.models.definitions import Query, QueryRevision
from queries.models.drivers import Run
from queries.models.history import Failure, Operation
from queries.roles import DEFINE
from queries.selectors.access import team_of_new_query
from queries.selectors.definitions import definitions
from queries.selectors.failures import failures
from queries.selectors.query_lines import QueryLine, query_line, query_lines
from queries.selectors.rows import param_defaults
from queries.selectors.supervision import history
from queries.services import idempotency_keys
from queries.services.definitions import catalog
from queries.services.supervision import operations

_SEVERAL = partial(word, about="Repeat for several values.", many=True)


class QueriesView(ApiView):
    """All queries."""

    @lists(
        "list_queries",
        QueryBody,
        parameters=[
            _SEVERAL("phase", Phase),
            _SEVERAL("health", Verdict),
            word("desired", Desired),
            word("application"),
            word("pool"),
            word("team"),
            word("search", about="Text that the name contains."),
            word(
                "label",
                about="team=data, team= for no value, team for any value; repeat for several.",
                many=True,
            ),
        ],
    )
    def get(self) -> Response:
        """List queries, sorted by name."""
        selection = parse_filters(
            {name: self.query_param(name) for name in ("application", "pool", "team", "search")}
            | {
                "phase": self.choice_params("phase", Phase),
                "health": self.choice_params("health", Verdict),
                "desired": self.choice_params("desired", Desired)[-1:],
                "label": self.request.query_params.getlist("label"),
            }
        )

        def fetch(after: Key | None, count: int) -> list[QueryLine]:
            start = str(after[0]) if after else ""
            return query_lines(selection, now=self.now, after=start, limit=count, bars=0)

        return page(self.request, fetch, lambda line: [line.query.name], QueryBody)

    @creates(
        "create_query",
        QueryBody,
        changes.QueryCreate,
        parameters=[changes.DRY_RUN, changes.REQUIRE_CHECKED],
        again=changes.or_trial(QueryBody),
    )
    def post(self, sent: Sent) -> Response:
        """Create a stopped query; return its body and its ETag.

        An identical existing query is returned unchanged, with 200.
        """
        same = idempotency_keys.same_query(self.request.user, sent)
        if same is not None:
            if changes.requires_check(self):
                idempotency_keys.refuse_unchecked(same)
            return _answer(same.name, self, sent=sent)
        return _create(self, sent)


class QueryView(changes.DefinitionView):
    """One query."""

    @answers("get_query", QueryBody)
    def get(self, name: str) -> Response:
        """Return a query; the ETag covers only its definition."""
        return _answer(name, self)

    @changes.changes("replace_query", QueryBody, changes.QueryReplace)
    def put(self, sent: Sent, name: str) -> Response:
        """Replace the definition; it takes effect at the next start or restart."""
        if changes.is_new(self.request):
            return self._create(sent, name)
        row = definitions.query(name)
        locations = row.checkpoints.filter(retired_at=None).values_list("location", flat=True)
        fixed = {"name": row.name, "application": row.application.name, "checkpoint": locations[0]}
        saved = changes.replace(self.request, row, sent, fixed, self._store(row))
        return changes.would_save(saved) if changes.is_dry(self) else _answer(name, self, sent=sent)

    @changes.changes("patch_query", QueryBody, changes.QueryMerge)
    def patch(self, sent: Sent, name: str) -> Response:
        """Merge a part into the newest definition; If-Match is optional."""
        row = definitions.query(name)
        saved = changes.patch(self.request, row, sent["spec"], self._store(row))
        return changes.would_save(saved) if changes.is_dry(self) else _answer(name, self, sent=sent)

    def _create(self, sent: Sent, name: str) -> Response:
        """Create the query with this URL."""
        if sent.get("name", name) != name:
            raise invalid("name", sent["name"], f"is not {name}.", "Remove it.")
        exists = Query.objects.filter(name=name, archived_at=None).exists()
        changes.refuse_there(name, there=exists)
        new = {"application": "", "checkpoint": "", "team": "", **sent, "name": name}
        return _create(self, new)

    def _store(self, row: Query) -> Any:
        """Return the function that stores a definition, or that only plans it."""
        how: dict[str, Any] = {"query": row, "require_checked": changes.requires_check(self)}
        if changes.is_dry(self):
            return partial(catalog.plan_query, **how, rights=self.author["rights"])
        return partial(catalog.revise_query, **how, **self.author)

    @answers("delete_query", None, role=DEFINE, parameters=[changes.IF_MATCH, changes.DRY_RUN])
    def delete(self, name: str) -> None:
        """Delete a stopped query; its history and its checkpoint's files are retained."""
        row = definitions.query(name)
        changes.check_deleted(self.request, row)
        with changes.undone(self):
            operations.archive_query(query=row, **self.by)


def _with_params(row: Query, sent: Sent) -> Sent:
    """Return a start's request, with strings converted to the defaults' types if requested."""
    rest = {key: value for key, value in sent.items() if key != "read_text"}
    if sent["read_text"] and sent["params"]:
        rest["params"] = from_text(param_defaults(row), sent["params"])
    return rest


class QueryStartView(ApiView):
    """The `start` verb."""

    @accepts("start_query", form=changes.StartWithParams)
    def post(self, sent: Sent, name: str) -> Operation:
        """Start the query on its newest revision; poll the operation until it ends."""
        row = definitions.query(name)
        return operations.request_start(query=row, **_with_params(row, sent), **self.by)


class QueryTakeoverView(ApiView):
    """The `takeover` verb."""

    @accepts("take_over_query", role=DEFINE)
    def post(self, name: str) -> Operation:
        """Take over a checkpoint that another installation owns, and start the query.

        First make sure that the other installation no longer runs the query: if both write, batches
        are executed twice and the checkpoint can be damaged.
        """
        return operations.confirm_takeover(query=definitions.query(name), **self.by)


class QueryStopView(ApiView):
    """The `stop` verb."""

    @accepts("stop_query", form=changes.Stop)
    def post(self, sent: Sent, name: str) -> Operation:
        """Stop the query, after the batch in flight (graceful) or immediately (now)."""
        mode = StopMode(sent["mode"])
        return operations.request_stop(query=definitions.query(name), mode=mode, **self.by)


class QueryRestartView(ApiView):
    """The `restart` verb."""

    @accepts("restart_query", form=changes.StartWithParams)
    def post(self, sent: Sent, name: str) -> Operation:
        """Stop the query gracefully and start it on its newest revision."""
        row = definitions.query(name)
        return operations.request_restart(query=row, **_with_params(row, sent), **self.by)


class QueryRevisionsView(ApiView):
    """A query's revisions."""

    @lists("list_query_revisions", QueryRevisionBody, by="number")
    def get(self, name: str) -> QuerySet[QueryRevision]:
        """List the definition's revisions, newest first."""
        return definitions.revisions_of(definitions.query(name))


class QueryRunsView(ApiView):
    """A query's runs."""

    @lists("list_query_runs", RunBody, by="epoch")
    def get(self, name: str) -> QuerySet[Run]:
        """List the runs, newest first."""
        return history.runs_of(definitions.query(name))


class QueryProgressView(ApiView):
    """A query's executed batches."""

    @lists(
        "list_query_progress",
        ProgressRowBody,
        parameters=[OpenApiParameter("run", OpenApiTypes.INT)],
    )
    def get(self, name: str) -> Response:
        """List executed batches, newest first, each with Spark's own progress."""
        row = definitions.query(name)
        text = self.request.query_params.get("run")
        if text is not None and whole(text) is None:
            raise invalid("run", text, "is not a valid run ID.")

        def fetch(after: Key | None, count: int) -> list[dict[str, Any]]:
            return heard.progress_page(
                row.pk,
                before=int(after[0]) if after else None,
                run=int(text) if text else None,
                limit=count,
            )

        return page(self.request, fetch, lambda batch_row: [batch_row["id"]], ProgressRowBody)


class QueryFailuresView(ApiView):
    """A query's failures."""

    @lists("list_query_failures", FailureBody)
    def get(self, name: str) -> QuerySet[Failure]:
        """List failures, newest first, including driver failures that ended one of its runs."""
        return failures.failures_of(definitions.query(name))


def _create(view: ApiView, sent: Sent) -> Response:
    sent["team"] = team_of_new_query(view.request.user, sent["application"], sent["team"])
    sent["require_checked"] = changes.requires_check(view)
    if changes.is_dry(view):
        return changes.would_save(catalog.plan_query(**sent, rights=view.author["rights"]))
    return _answer(catalog.create_query(**sent, **view.author).name, view, new=True, sent=sent)


def _answer(name: str, view: ApiView, **how: Any) -> Response:
    line = query_line(name, now=view.now, bars=0)
    return changes.defined(QueryBody(line).data, line.query, line.revision, **how)
