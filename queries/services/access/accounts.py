"""Manage accounts, roles and sessions; refuse to share a root worker's installation.

Drivers of a worker that runs as root run as root too, without its capabilities if they are
isolated. Without isolation, an author's code can do all that the worker can. Either is acceptable
for a single person evaluating Headgate, who is an admin anyway. It becomes a risk when others may
bring SQL or code into drivers, so that step, and only that step, is refused unless an admin has
accepted the risk: what exists is shown on the System page, and nothing that is running is stopped.
"""

import secrets
from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import transaction

from controlplane.nudge import changed
from queries.domain.access import Act
from queries.domain.errors import Conflict, Invalid, Missing, NotAllowed, Problem
from queries.domain.hosts import Mode
from queries.launchers.recorded_isolation import recorded_isolation
from queries.models.access.accounts import BrowserSession, Team, living
from queries.roles import Role, highest_role, role_of
from queries.selectors.access import comes_by_single_sign_on, name_of, sessions_of
from queries.services.access.audit import record_act

SETTING = "HEADGATE_ROOT_WORKER"
WAY_OUT = (
    "Run the worker under an account of its own, with the user namespaces that isolate drivers "
    "(docs/isolation.md), or accept the risk with "
    f"{SETTING}=1 in the environment of all processes, and restart them."
)


def refuse_second_team() -> None:
    """Raise `Conflict` if a second team would be added with such a worker."""
    if (why := risk()) and Team.objects.exists():
        _refuse("A second team cannot be added", why)


def refuse_author(name: str, before: Role | None = None) -> None:
    """Raise `Conflict` if an account would become an author with such a worker.

    An admin who becomes an author has fewer rights than before, which is never refused.
    """
    if before not in (Role.AUTHOR, Role.ADMIN) and (why := risk()):
        _refuse(f"{name} cannot become an author without being an admin", why)


def refuse_python(user: User) -> None:
    """Raise `Conflict` if a user who is not an admin would write Python with such a worker."""
    if (why := risk()) and highest_role(user) is not Role.ADMIN:
        _refuse(f"{user.get_username()} cannot get permission to write Python", why)


def risk() -> str:
    """Return what makes this host's worker unfit for others' code; "" if nothing does.

    The worker "runs as root", and so do its drivers, or "does not isolate its drivers".
    """
    choice = None if settings.ROOT_WORKER else recorded_isolation()
    if choice is None:
        return ""
    if choice.root:
        return "runs as root"
    return "does not isolate its drivers" if choice.mode is Mode.NEITHER else ""


def shared_with() -> str:
    """Return who shares an installation with such a worker, as a sentence; "" if nobody does."""
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


def note_use(session_key: str, *, now: datetime) -> None:
    """Extend a session's idle timeout."""
    BrowserSession.objects.filter(session_key=session_key).update(seen_at=now)


def end_session(*, user: User, name: str, actor: str, now: datetime) -> None:
    """End the user's session with this displayed name; raise `Missing` if there is none."""
    for row in sessions_of(user, now=now):
        if name_of(row.session_key) == name:
            _end(user, [row.session_key], actor, now)
            return
    raise Missing("This browser is no longer signed in.")


def end_sessions(*, user: User, actor: str, now: datetime, but: str = "") -> int:
    """End a user's sessions, except `but` if given; return how many. Tokens are not sessions."""
    keys = [row.session_key for row in sessions_of(user, now=now) if row.session_key != but]
    if keys:
        _end(user, keys, actor, now)
    return len(keys)


def _end(user: User, keys: list[str], actor: str, now: datetime) -> None:
    with transaction.atomic():
        BrowserSession.objects.filter(pk__in=keys).delete()
        record_act(
            Act.SESSIONS_ENDED, actor=actor, now=now, subject=user.username, sessions=len(keys)
        )
        end_streams(user)


def end_streams(user: User) -> None:
    """Make every web process close a user's live pages; pages that are still allowed reconnect.

    Without Redis, each web process notices within 5 s that a session has ended.
    """
    changed(f"person:{user.pk}")


def forget_expired_sessions(*, now: datetime) -> int:
    """Delete expired sessions; return how many. Every attempted sign-in creates one."""
    return int(BrowserSession.objects.exclude(living(now)).delete()[0])


#: Random bytes in an initial password; 18 bytes encode to 24 characters.
PASSWORD_BYTES = 18


def create_user(*, username: str, role: Role | None, actor: str, now: datetime) -> tuple[User, str]:
    """Create an account and return it with its random password, which is shown only once.

    Raises `Invalid` for the name, and `Conflict` for an author (`risk`).
    """
    name = username.strip()
    if not name or len(name) > 150 or not all(c.isalnum() or c in "@.+-_" for c in name):
        way_out = "Use 1 to 150 letters, digits and @ . + - _"
        raise Invalid([Problem("username", name[:200], "is not a valid name.", way_out)])
    with transaction.atomic():
        if User.objects.filter(username__iexact=name).exists():
            raise Invalid([Problem("username", name, "is already in use.", "Choose another name.")])
        if role is Role.AUTHOR:
            refuse_author(name)
        password = secrets.token_urlsafe(PASSWORD_BYTES)
        user = User.objects.create_user(name, password=password)
        give_role(user, role)
        record_act(Act.USER_CREATED, actor=actor, now=now, subject=name, role=role)
    return user, password


def set_role(*, user: User, role: Role | None, actor: str, now: datetime) -> None:
    """Give a user exactly one role; None removes every role. Open pages show this immediately.

    Raises `NotAllowed` if no admin would remain, or if the role comes from groups; `Conflict` for
    an author with a risky worker (`risk`).
    """
    _is_local(user)
    with transaction.atomic():
        if role is not Role.ADMIN:
            _keep_an_admin(user)
        before = highest_role(user)
        if role is Role.AUTHOR:
            refuse_author(user.username, before)
        give_role(user, role)
        about = {"before": before, "after": role or "none"}
        record_act(Act.ROLE_GIVEN, actor=actor, now=now, subject=user.username, **about)
        end_streams(user)


def reset_password(*, user: User, actor: str, now: datetime) -> str:
    """Give a user a new random password and return it; end the user's existing sessions.

    Raises `NotAllowed` for an account without a password (single sign-on).
    """
    _is_local(user)
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    with transaction.atomic():
        user.set_password(password)
        user.save(update_fields=["password"])
        record_act(Act.PASSWORD_RESET, actor=actor, now=now, subject=user.username)
        end_sessions(user=user, actor=actor, now=now)
    return password


def note_new_password(*, user: User, but: str, now: datetime) -> None:
    """Record that a user has changed their password; end the user's sessions except `but`."""
    with transaction.atomic():
        name = user.username
        record_act(Act.PASSWORD_CHANGED, actor=name, now=now, subject=name)
        end_sessions(user=user, actor=name, now=now, but=but)


def set_active(*, user: User, active: bool, actor: str, now: datetime) -> None:
    """Activate an account, or deactivate it and immediately end its sessions and open pages.

    Tokens of an inactive account are rejected; its history is kept.
    """
    with transaction.atomic():
        if not active:
            _keep_an_admin(user)
        elif not user.is_active and highest_role(user) is Role.AUTHOR:
            refuse_author(user.username)
        user.is_active = active
        user.save(update_fields=["is_active"])
        kind = Act.USER_ACTIVATED if active else Act.USER_DEACTIVATED
        record_act(kind, actor=actor, now=now, subject=user.username)
        if not active:
            end_sessions(user=user, actor=actor, now=now)


def give_role(user: User, role: Role | None) -> None:
    """Give a user exactly one role, without checks: the caller has already made them."""
    groups = {name: Group.objects.get_or_create(name=name)[0] for name in Role}
    user.groups.remove(*groups.values())
    if role is not None:
        user.groups.add(groups[role])


def _is_local(user: User) -> None:
    if comes_by_single_sign_on(user):
        raise NotAllowed(
            f"{user.username} signs in through SSO.",
            way_out="The role comes from the user's groups, and there is no password here.",
        )


def _keep_an_admin(leaving: User) -> None:
    if role_of(leaving) is not Role.ADMIN:
        return
    if leaving.is_superuser and leaving.is_active:
        raise NotAllowed(
            f"{leaving.username} is a superuser and stays an admin.",
            way_out="It was created with `manage.py` and can only be changed there.",
        )
    others = User.objects.filter(is_active=True).exclude(pk=leaving.pk)
    if not any(role_of(other) is Role.ADMIN for other in others):
        raise NotAllowed(
            f"{leaving.username} is the last admin.", way_out="Make another user an admin first."
        )
