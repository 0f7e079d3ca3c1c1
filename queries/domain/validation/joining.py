"""Which application a new query may join; callers pass their form's field names."""

from queries.domain.errors import Problem


def joining_problems(application: str, *, kind: str, holder: str) -> list[Problem]:
    """Return why a query cannot join an application: it runs a script or is another query's own.

    `kind` comes from the application's definition; `holder` is the existing query that the
    application was created for, "" for none.
    """
    problems = []
    if kind == "script":
        problems.append(
            Problem(
                "application",
                application[:200],
                "runs a script that starts its own queries.",
                "Start the query in that script, or choose another application.",
            )
        )
    elif holder:
        problems.append(
            Problem(
                "application",
                application[:200],
                f"was created only for query {holder}.",
                "Create a shared application for queries that share a driver.",
            )
        )
    return problems


def team_problem(application: str, team: str) -> Problem | None:
    """Return what is wrong with a team given for an existing application; None if none is given."""
    if not team:
        return None
    way_out = f"Remove it: the query belongs to the team of application {application}."
    return Problem("team", team[:200], "applies only to a new application.", way_out)


def kind_problem(before: str, after: str) -> Problem | None:
    """Return what is wrong with changing an application's kind, which is permanent."""
    if after == before:
        return None
    return Problem("kind", after, "cannot be changed.", "Create another application of that kind.")
