"""Refuse to switch async progress tracking off while the offset log has a gap."""

from queries.domain.definitions import parsing
from queries.domain.definitions.spec import PythonQuery, SqlQuery
from queries.domain.errors import NotAllowed, Problem
from queries.domain.triggers.async_progress import FIELD, tracking
from queries.models.definitions import Query, QueryRevision
from queries.selectors.triggers.replay_exposure import UnloggedBatches, gap_of


def gap_problems(
    query: Query, newest: QueryRevision, form: SqlQuery | PythonQuery | None
) -> list[Problem]:
    """Return why a new form of a query cannot continue from its offset log, naming the gap.

    Only a form that switches async progress tracking off is checked. If it is already off, a new
    form does not make the problem worse.
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
