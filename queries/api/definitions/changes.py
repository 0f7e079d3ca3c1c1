"""Put and patch of a definition: the same steps for queries and applications."""

from collections.abc import Callable
from typing import Any

from rest_framework.request import Request

from queries.api.errors import invalid
from queries.api.etags import check_if_match
from queries.domain.errors import StaleRevision
from queries.models.applications import Application
from queries.models.definitions import Query

#: How often a patch without If-Match is applied anew when somebody else was quicker.
ATTEMPTS = 5

Spec = dict[str, Any]
#: Stores `spec`, made from the revision `expected_revision`; raises `StaleRevision`.
Store = Callable[..., Any]


def replace(
    request: Request, owner: Query | Application, sent: Spec, fixed: Spec, store: Store
) -> None:
    """Store a definition whole. `fixed` holds what cannot change, and must be sent as it is."""
    for name, value in fixed.items():
        if name in sent and sent[name] != value:
            way_out = "Delete this one and create another, or leave the field out."
            raise invalid(name, sent[name], f"is {value} and cannot be changed.", way_out)
    number, _ = _newest(owner)
    named = check_if_match(request, owner, number)
    store(spec=sent["spec"], expected_revision=number if named else None)


def patch(request: Request, owner: Query | Application, part: Spec, store: Store) -> None:
    """Merge a part into the newest definition; with If-Match only into the one it names."""
    for attempt in range(1, ATTEMPTS + 1):
        number, spec = _newest(owner)
        named = check_if_match(request, owner, number, required=False)
        try:
            store(spec=merged(spec, part), expected_revision=number)
        except StaleRevision:
            if named or attempt == ATTEMPTS:
                raise
        else:
            return


def check_newest(request: Request, owner: Query | Application) -> None:
    """Raise `StaleRevision` where If-Match is there and names another than the newest."""
    check_if_match(request, owner, _newest(owner)[0], required=False)


def merged(target: Any, part: Any) -> Any:
    """Return JSON merged as RFC 7396 has it: null removes, lists are replaced whole."""
    if not isinstance(part, dict):
        return part
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in part.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


def _newest(owner: Query | Application) -> tuple[int, Spec]:
    revision = owner.revisions.order_by("-number")[0]
    spec: Spec = revision.spec
    return revision.number, spec
