"""Refuse to start what has not passed a preflight, where its application requires one."""

from queries.domain.errors import NotAllowed
from queries.models.definitions import Query
from queries.selectors.probes import is_unproven


class Unproven(NotAllowed):
    """The revision has passed no preflight on this checkpoint."""

    code = "unproven"


def refuse_unproven(query: Query) -> None:
    """Raise `Unproven` where the newest revision may not start yet.

    Automatic restarts use the revision that ran, and are not checked.
    """
    if is_unproven(query):
        number = query.revisions.order_by("-number")[0].number
        raise Unproven(
            f"Revision {number} of {query.name} has passed no preflight on its checkpoint, and "
            f"application {query.application.name} requires one.",
            way_out="Run one first: the button on its Definition tab, or POST "
            f"/api/v1/queries/{query.name}/preflight/.",
        )
