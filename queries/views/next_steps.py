"""The actions offered on the pages of failures and incidents, and where each is confirmed."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from queries.domain.failures.categories import Category
from queries.domain.failures.error_text import sql_position
from queries.domain.failures.next_steps import ActionKind, FailedRun, offered_actions
from queries.domain.states import Desired, Phase
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.history import Failure
from queries.roles import DEFINE, OPERATE, may
from queries.selectors.rows import newest_revisions


@dataclass(frozen=True, slots=True)
class OfferedAction:
    """One action: its button, and where it leads."""

    words: str
    leads_to: str
    address: str
    dialog: bool  # confirmed in a dialog; otherwise on a separate page
    helps: bool = True  # `NextStep.helps`


#: Action -> (URL name, role, whether a dialog confirms it). For a query started by a script, the
#: actions in `_OF_SCRIPT` apply to its application.
_WHERE = {
    ActionKind.EDIT: ("query-edit", DEFINE, False),
    ActionKind.BACK: ("query-edit", DEFINE, False),
    ActionKind.REWIND: ("query-rewind", DEFINE, False),
    ActionKind.RESET: ("query-reset", DEFINE, False),
    ActionKind.AGAIN: ("query-start", OPERATE, True),
    ActionKind.STOP: ("query-stop", OPERATE, True),
}
_OF_SCRIPT = {
    **_WHERE,
    ActionKind.EDIT: ("application-edit", DEFINE, False),
    ActionKind.AGAIN: ("application-restart", OPERATE, True),
    ActionKind.STOP: ("application-stop", OPERATE, True),
}


def offers(request: HttpRequest, failure: Failure, good: Run | None) -> list[OfferedAction]:
    """Return the user's options for a failure, best first."""
    run = failure.run
    if run is None or run.query.archived_at is not None:
        return []
    query = run.query
    failed_run = FailedRun(
        category=Category(failure.category),
        phase=Phase(query.phase),
        wanted=query.desired == Desired.RUNNING,
        batch=failure.batch,
        revision=run.revision.number,
        newest=newest_revisions([query.pk])[query.pk].number,
        good=good.revision.number if good else None,
        subject=run.subject,
    )
    actions = []
    for way in offered_actions(failed_run):
        name, role, dialog = (_OF_SCRIPT if query.discovered else _WHERE)[way.act]
        if may(request.user, role, query.application):
            address = _address(name, query, way.act, way.number, request.path)
            if name == "query-edit" and way.act is ActionKind.EDIT:
                address += _position_params(failure, run)
            actions.append(OfferedAction(way.words, way.leads_to, address, dialog, way.helps))
    return actions


def _position_params(failure: Failure, run: Run) -> str:
    """Return the URL parameters that open the form at the position of the SQL error."""
    position = sql_position(failure.root_cause, failure.message)
    if position is None or "sql" not in run.revision.spec:
        return ""
    return f"?{urlencode({'of': run.revision.number, 'line': position[0], 'column': position[1]})}"


def _address(name: str, query: Query, act: ActionKind, number: int | None, back: str) -> str:
    params: dict[str, str] = {"next": back}
    if act is ActionKind.BACK:
        params = {"from": str(number), "review": "1"}
    elif act is ActionKind.EDIT:
        params = {}
    elif act is ActionKind.REWIND:
        params["batch"] = str(number)
    subject = query.application if name.startswith("application-") else query
    address = reverse(name, args=[subject.name])
    return f"{address}?{urlencode(params)}" if params else address
