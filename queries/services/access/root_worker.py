"""Refuse to share an installation whose worker is root, or does not isolate its drivers.

Drivers of a worker that is root run as root too, without its capabilities if they are isolated.
Without isolation, an author's code is as good as the worker. Either is good enough for a single
person who tries Headgate, who is an admin anyway. It becomes a risk when others may bring SQL or
code into drivers, so it is refused at that moment, unless an admin has accepted it, and only then:
what exists is shown on the System page, and nothing that runs is stopped.
"""

from django.conf import settings
from django.contrib.auth.models import User

from queries.domain.errors import Conflict
from queries.domain.walls import Mode
from queries.launchers.recorded_walls import recorded_walls
from queries.models.access.teams import Team
from queries.roles import Role, highest_role

SETTING = "HEADGATE_ROOT_WORKER"
WAY_OUT = (
    "Run the worker under an account of its own, with the user namespaces that isolate drivers "
    "(docs/operations.md, Walls of drivers), or accept the risk with "
    f"{SETTING}=1 in the environment of all processes, and restart them."
)


def refuse_second_team() -> None:
    """Raise `Conflict` if a team is to be added to another beside such a worker."""
    if (why := risk()) and Team.objects.exists():
        _refuse("A second team cannot be added", why)


def refuse_author(name: str, before: Role | None = None) -> None:
    """Raise `Conflict` if an account becomes an author beside such a worker.

    An admin who becomes an author has fewer rights than before, which is never refused.
    """
    if before not in (Role.AUTHOR, Role.ADMIN) and (why := risk()):
        _refuse(f"{name} cannot become an author without being an admin", why)


def refuse_python(user: User) -> None:
    """Raise `Conflict` if a user who is not an admin is to write Python beside such a worker."""
    if (why := risk()) and highest_role(user) is not Role.ADMIN:
        _refuse(f"{user.get_username()} cannot get the right to write Python", why)


def risk() -> str:
    """Return what makes this host's worker no place for others' code; "" if nobody objects to it.

    The worker "runs as root", and so do its drivers, or "does not isolate its drivers".
    """
    choice = None if settings.ROOT_WORKER else recorded_walls()
    if choice is None:
        return ""
    if choice.root:
        return "runs as root"
    return "does not isolate its drivers" if choice.mode is Mode.NEITHER else ""


def shared_with() -> str:
    """Return who shares an installation of such a worker, as a sentence; "" if nobody does."""
    teams = list(Team.objects.values_list("name", flat=True)[:6])
    held = User.objects.filter(is_active=True, is_superuser=False, groups__name=Role.AUTHOR)
    held = held.exclude(groups__name=Role.ADMIN).order_by("username")
    authors = list(held.values_list("username", flat=True)[:6])
    said = [f"the teams {_some(teams)}"] if len(teams) > 1 else []
    said += [f"the authors {_some(authors)}, who are not admins,"] if authors else []
    return f"{' and '.join(said)} share this installation." if said else ""


def _some(names: list[str]) -> str:
    return ", ".join([*names[:5], *(["…"] if len(names) > 5 else [])])


def _refuse(what: str, why: str) -> None:
    raise Conflict(
        f"{what}: this host's worker {why}, so it serves one team: others' SQL and code would run "
        "with the worker's account.",
        way_out=WAY_OUT,
    )
