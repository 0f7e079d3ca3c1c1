"""The acts that pages of failures and incidents offer, each with where it is confirmed."""

from dataclasses import dataclass
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from queries.domain.failures.categories import Category
from queries.domain.failures.ways import Act, Seen, ways
from queries.domain.states import Desired, Phase
from queries.models.definitions import Query
from queries.models.drivers import Run
from queries.models.failures import Failure
from queries.roles import DEFINE, OPERATE, may
from queries.selectors.newest import newest_revisions


@dataclass(frozen=True, slots=True)
class Offer:
    """One act: what its button says and does, and what it leads to."""

    words: str
    leads_to: str
    address: str
    dialog: bool  # confirmed in a dialog; else on a page of its own


#: Act -> (name of the address, role, whether a dialog confirms it).
_WHERE = {
    Act.EDIT: ("query-edit", DEFINE, False),
    Act.BACK: ("query-edit", DEFINE, False),
    Act.REWIND: ("query-rewind", DEFINE, False),
    Act.RESET: ("query-reset", DEFINE, False),
    Act.AGAIN: ("query-start", OPERATE, True),
    Act.STOP: ("query-stop", OPERATE, True),
}


def offers(request: HttpRequest, failure: Failure, good: Run | None) -> list[Offer]:
    """Return what whoever asks may do about a failure, the best first."""
    run = failure.run
    if run is None or run.query.archived_at is not None:
        return []
    query = run.query
    seen = Seen(
        category=Category(failure.category),
        phase=Phase(query.phase),
        wanted=query.desired == Desired.RUNNING,
        batch=failure.batch,
        revision=run.revision.number,
        newest=newest_revisions([query.pk])[query.pk].number,
        good=good.revision.number if good else None,
    )
    found = []
    for way in ways(seen):
        name, role, dialog = _WHERE[way.act]
        if may(request.user, role, query.application):
            address = _address(name, query, way.act, way.number, request.path)
            found.append(Offer(way.words, way.leads_to, address, dialog))
    return found


def _address(name: str, query: Query, act: Act, number: int | None, back: str) -> str:
    asked: dict[str, str] = {"next": back}
    if act is Act.BACK:
        asked = {"from": str(number), "review": "1"}
    elif act is Act.EDIT:
        asked = {}
    elif act is Act.REWIND:
        asked["batch"] = str(number)
    address = reverse(name, args=[query.name])
    return f"{address}?{urlencode(asked)}" if asked else address
