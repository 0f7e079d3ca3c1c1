"""Refuse to share an installation whose worker runs as root, unless an admin has accepted that.

Such a worker's drivers run as root too, without its capabilities if they are isolated. That is good
enough for a single person who tries Headgate, who is an admin anyway. It becomes a risk when others
may bring SQL or code into drivers, so it is refused at that moment, and only then: what exists is
shown on the System page, and nothing that runs is stopped.
"""

from django.conf import settings
from django.contrib.auth.models import User

from queries.domain.errors import Conflict
from queries.domain.walls import Mode
from queries.models.access.teams import Team
from queries.roles import Role, highest_role

SETTING = "HEADGATE_ROOT_WORKER"
WAY_OUT = (
    "Run the worker under an account of its own (docs/operations.md), or accept the risk with "
    f"{SETTING}=1 in the environment of all processes, and restart them."
)


def refuse_second_team() -> None:
    """Raise `Conflict` if a team is to be added to another, and the worker runs as root."""
    if worker_is_root() and Team.objects.exists():
        _refuse("A second team cannot be added")


def refuse_author(name: str, before: Role | None = None) -> None:
    """Raise `Conflict` if an account becomes an author, and the worker runs as root.

    An admin who becomes an author has fewer rights than before, which is never refused.
    """
    if before not in (Role.AUTHOR, Role.ADMIN) and worker_is_root():
        _refuse(f"{name} cannot become an author without being an admin")


def refuse_python(user: User) -> None:
    """Raise `Conflict` if a user who is not an admin is to write Python beside a root worker."""
    if worker_is_root() and highest_role(user) is not Role.ADMIN:
        _refuse(f"{user.get_username()} cannot get the right to write Python")


def worker_is_root() -> bool:
    """Return whether this host's worker runs as root, and so do its drivers, and nobody agreed."""
    from queries.launchers.process.walls.proven import known

    choice = None if settings.ROOT_WORKER else known()
    return choice is not None and choice.root and choice.mode is not Mode.ACCOUNTS


def shared_with() -> str:
    """Return who shares an installation whose worker is root, as a sentence; "" if nobody does."""
    teams = list(Team.objects.values_list("name", flat=True)[:6])
    held = User.objects.filter(is_active=True, is_superuser=False, groups__name=Role.AUTHOR)
    held = held.exclude(groups__name=Role.ADMIN).order_by("username")
    authors = list(held.values_list("username", flat=True)[:6])
    said = [f"the teams {_some(teams)}"] if len(teams) > 1 else []
    said += [f"the authors {_some(authors)}, who are not admins,"] if authors else []
    return f"{' and '.join(said)} share this installation." if said else ""


def _some(names: list[str]) -> str:
    return ", ".join([*names[:5], *(["…"] if len(names) > 5 else [])])


def _refuse(what: str) -> None:
    raise Conflict(
        f"{what}: this host's worker runs as root, so their SQL and code would run as root too.",
        way_out=WAY_OUT,
    )
