"""A query that a script starts is neither defined nor started by itself."""

from queries.domain.errors import NotAllowed
from queries.models.definitions import Query


def refuse_discovered(query: Query) -> None:
    """Raise `NotAllowed` where a script starts the query: it is not acted on by itself."""
    if query.discovered:
        name = query.application.name
        raise NotAllowed(
            f"{query.name} is started by the script of application {name}.",
            way_out=f"Start, stop or restart application {name}; change the query in its script.",
        )
