"""Refuse a start that would silently damage state: a missing preflight, a gap in the offset log."""

from typing import Any

from queries.domain.definitions import parsing
from queries.domain.definitions.spec import PythonQuery, SqlQuery
from queries.domain.errors import Conflict, NotAllowed, Problem
from queries.domain.sparks import Spark
from queries.domain.triggers.async_progress import FIELD, tracking
from queries.models.definitions import Query, QueryRevision
from queries.selectors.probes import (
    is_unproven,
    lacks_preflight,
    params_change,
    sentences,
    unaccepted_change,
    untried,
)
from queries.selectors.triggers.replays import UnloggedBatches, gap_of


def gap_problems(
    query: Query, newest: QueryRevision, form: SqlQuery | PythonQuery | None
) -> list[Problem]:
    """Return why a new form of a query cannot continue from its offset log, naming the gap.

    Only forms that switch async progress tracking off are checked. If it is already off, a new form
    does not make the problem worse.
    """
    if form is None or form.sink is None or tracking(newest.spec) is None:
        return []
    if tracking(parsing.as_json(form)) is not None:
        return []
    gap = _gap(query)
    if gap is None:
        return []
    before = "" if gap.before is None else f" and, before it, batch {gap.before}"
    return [
        Problem(
            FIELD,  # pages offer the safe procedure next to it
            "false",
            "cannot be switched off by editing the query yet: the offset log contains batch "
            f"{gap.newest}{before}, but not batch {gap.missing}, so Spark would fail with “batch "
            f"{gap.missing} doesn't exist”.",
            "Switch it off safely: on the query's page, or with POST "
            f"/api/v1/queries/{query.name}/async-off/.",
        )
    ]


def _gap(query: Query) -> UnloggedBatches | None:
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    return gap_of(checkpoint.location) if checkpoint else None


def refuse_start_on_gap(query: Query) -> None:
    """Raise `NotAllowed` if a start on the newest revision would fail because of the gap.

    That happens if the edit that switched async progress tracking off was accepted because the log
    had no gap, but the query kept running with tracking on, and the gap appeared later.
    """
    newest = query.revisions.order_by("-number").first()
    last = query.runs.select_related("revision").order_by("-epoch").first()
    if newest is None or last is None or tracking(last.revision.spec) is None:
        return
    if tracking(newest.spec) is not None or newest.spec.get("sink") is None:
        return
    gap = _gap(query)
    if gap is not None:
        raise NotAllowed(
            f"{query.name} ran with async progress tracking, which is off in revision "
            f"{newest.number}: the offset log contains batch {gap.newest}, but not batch "
            f"{gap.missing}, and Spark would fail on that.",
            way_out=(
                "Switch it off safely: on the query's page, or with POST "
                f"/api/v1/queries/{query.name}/async-off/."
            ),
        )


class Unproven(NotAllowed):
    """The revision has not passed a preflight on this checkpoint."""

    code = "unproven"


def refuse_unproven(query: Query) -> None:
    """Raise `Unproven` if the newest revision must pass a preflight first.

    Automatic restarts use the revision that ran, and are not checked.
    """
    if is_unproven(query):
        revision = query.revisions.order_by("-number")[0]
        if (refusal := could_not_try(query, revision.spec)) is not None:
            raise refusal
        raise Unproven(
            f"Revision {revision.number} of {query.name} has not passed a preflight on the query's "
            f"checkpoint, and application {query.application.name} requires one.",
            way_out=(
                "Run a preflight first: use the button on the Definition tab, or POST "
                f"/api/v1/queries/{query.name}/preflight/."
            ),
        )


def could_not_try(
    query: Query, spec: dict[str, Any], spark: Spark | None = None
) -> Unproven | None:
    """Return the refusal if preflights of a definition were completed, but not on the checkpoint.

    None if the definition does not need one, or none was completed.
    """
    why = untried(query, spec, spark) if lacks_preflight(query, spec, spark) else ""
    if not why:
        return None
    return Unproven(
        f"Application {query.application.name} requires a preflight, but the preflight of "
        f"{query.name} could not try {why.removesuffix('.')}.",
        way_out="Turn “Require a preflight” off in the application.",
    )


class StateChanges(Conflict):
    """The revision changes the meaning of the state in the checkpoint."""

    code = "state-changes"


def refuse_unaccepted(
    query: Query, *, accepted: bool, actor: str, params: dict[str, Any] | None = None
) -> None:
    """Raise `StateChanges` if the newest revision would change the meaning of existing state.

    If a user accepts the change, the revision records that user, and later starts of it on this
    checkpoint do not require it again. Automatic restarts use the revision that ran, and never
    require it. Other values of `params` than those of the run that wrote the state must be accepted
    at each start.
    """
    if not accepted and (message := params_change(query, params)):
        raise StateChanges(
            message,
            way_out=(
                "Reset the query to rebuild its state, start it with the former values, or accept "
                "the change: “accept_state_change” over REST, --accept-state-change on the command "
                "line, or on the confirmation page."
            ),
        )
    unaccepted = unaccepted_change(query)
    if unaccepted is None:
        return
    revision, change = unaccepted
    if not accepted:
        raise StateChanges(
            f"Revision {revision.number} of {query.name} changes its state. {sentences(change)[0]}",
            way_out=(
                "Run a preflight, reset the query to rebuild its state, or accept the change: "
                "“accept_state_change” over REST and in an apply, --accept-state-change on the "
                "command line, or on the confirmation page."
            ),
        )
    checkpoint = query.checkpoints.filter(retired_at=None).first()
    rows = QueryRevision.objects.filter(pk=revision.pk)
    rows.update(accepted_on=checkpoint, accepted_by=actor)
