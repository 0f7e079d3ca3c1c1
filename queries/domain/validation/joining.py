"""Which application a new query may join; callers say how their form writes the fields."""

from queries.domain.errors import Problem


def joining_problems(application: str, *, kind: str, holder: str) -> list[Problem]:
    """Return why a query may not join an application: one that runs a script, or another's own.

    `kind` is of the application's definition; `holder` is the living query that it was created
    for, "" for none.
    """
    problems = []
    if kind == "script":
        problems.append(
            Problem(
                "application",
                application[:200],
                "runs a script, which starts its queries itself.",
                "Start the query in that script, or choose another application.",
            )
        )
    elif holder:
        problems.append(
            Problem(
                "application",
                application[:200],
                f"was created for query {holder} only.",
                "Create an application for queries that share a driver.",
            )
        )
    return problems


def team_problem(application: str, team: str) -> Problem | None:
    """Return what is wrong with a team beside an application that is there; None without one."""
    if not team:
        return None
    way_out = f"Leave it out: the query belongs to the team of application {application}."
    return Problem("team", team[:200], "is for a new application.", way_out)


def kind_problem(before: str, after: str) -> Problem | None:
    """Return what is wrong with an application's kind: it is for good."""
    if after == before:
        return None
    return Problem("kind", after, "cannot be changed.", "Create another application of that kind.")
