"""Refuse actions on queries that a script starts: only the script defines and starts them."""

from queries.domain.errors import NotAllowed
from queries.models.definitions import Query


def refuse_discovered(query: Query) -> None:
    """Raise `NotAllowed` if a script starts the query, which then has no individual actions."""
    if query.discovered:
        name = query.application.name
        raise NotAllowed(
            f"{query.name} is started by the script of application {name}.",
            way_out=f"Start, stop or restart application {name}; change the query in its script.",
        )
