"""A worker that is root or isolates no driver serves one team; others and authors are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.access import Arrival
from queries.domain.errors import Conflict
from queries.domain.hosts import Mode
from queries.launchers import recorded_isolation
from queries.models.access.accounts import Grant, GroupRole, Team
from queries.roles import Role, highest_role
from queries.services.access import accounts, sign_ins, teams
from queries.services.system import health

pytestmark = pytest.mark.django_db

BY: dict[str, Any] = {"actor": "ada", "now": timezone.now()}


def _worker(home: Path, *, root: bool, mode: Mode = Mode.BUBBLEWRAP) -> None:
    said = {"mode": mode, "asked": "auto", "lacks": "", "root": root, "holds": ""}
    (home / recorded_isolation.FILE).write_text(json.dumps(said))


@pytest.fixture
def home(settings: Any, tmp_path: Path) -> Path:
    settings.HEADGATE_HOME = tmp_path
    _worker(tmp_path, root=True)
    return tmp_path


def _second_team() -> None:
    teams.create_team(name="data", **BY)
    teams.create_team(name="web", **BY)


def _author_by_sso() -> None:
    now = timezone.now()
    GroupRole.objects.create(group="data", role=Role.AUTHOR, created_at=now, created_by="ada")
    arrival = Arrival(issuer="https://id.example", subject="1", name="nina", groups=("data",))
    sign_ins.let_in(arrival, now=now)


def _user(role: Role, *, active: bool = True) -> User:
    user = User.objects.create_user(f"a-{role}", is_active=active)
    accounts.give_role(user, role)
    return user


WAYS: dict[str, Callable[[], object]] = {
    "a second team": _second_team,
    "a new author": lambda: accounts.create_user(username="nina", role=Role.AUTHOR, **BY),
    "a viewer becomes one": lambda: accounts.set_role(
        user=_user(Role.VIEWER), role=Role.AUTHOR, **BY
    ),
    "an author comes back": lambda: accounts.set_active(
        user=_user(Role.AUTHOR, active=False), active=True, **BY
    ),
    "Python": lambda: teams.set_grants(
        user=_user(Role.AUTHOR), all_teams=False, write_python=True, **BY
    ),
    "a group": lambda: sign_ins.add_group_role(group="data", role=Role.AUTHOR, **BY),
    "another role of a group": lambda: sign_ins.change_group_role(
        sign_ins.add_group_role(group="data", role=Role.VIEWER, **BY), role=Role.AUTHOR, **BY
    ),
    "single sign-on": _author_by_sso,
}


@pytest.mark.guarantee("G-TEAM-6")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("why", ["runs as root", "does not isolate its drivers"])
def test_others_are_refused_beside_such_a_worker_with_the_way_out(
    home: Path, way: str, why: str
) -> None:
    if why != "runs as root":
        _worker(home, root=False, mode=Mode.NEITHER)
    with pytest.raises(Conflict, match=f"worker {why}, so it serves one team") as refused:
        WAYS[way]()
    assert "HEADGATE_ROOT_WORKER=1" in refused.value.way_out
    assert not User.objects.filter(username="nina").exists()
    assert Team.objects.count() <= 1
    assert not Grant.objects.exists()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("why", ["accepted", "another account", "unisolated", "no worker yet"])
def test_otherwise_nothing_is_refused(home: Path, settings: Any, way: str, why: str) -> None:
    settings.ROOT_WORKER = why in ("accepted", "unisolated")
    if why == "another account":
        _worker(home, root=False)
    elif why == "unisolated":
        _worker(home, root=False, mode=Mode.NEITHER)
    elif why == "no worker yet":
        (home / recorded_isolation.FILE).unlink()
    WAYS[way]()


def test_one_team_admins_viewers_and_operators_are_as_before(home: Path) -> None:
    teams.create_team(name="data", **BY)
    for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN):
        accounts.create_user(username=f"a-{role}", role=role, **BY)
    root, _ = accounts.create_user(username="other", role=Role.ADMIN, **BY)
    teams.set_grants(user=root, all_teams=True, write_python=True, **BY)
    accounts.set_role(user=root, role=Role.AUTHOR, **BY)  # fewer rights than before
    assert highest_role(User.objects.get(pk=root.pk)) is Role.AUTHOR


def test_pages_and_rest_answer_409_with_the_way_out(home: Path, client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))
    page = client.post("/settings/users/", {"username": "nina", "role": "author"})
    assert page.status_code == 409
    assert "HEADGATE_ROOT_WORKER=1" in page.content.decode()
    assert client.post("/settings/teams/new/", {"name": "data"}).status_code == 302
    page = client.post("/settings/teams/new/", {"name": "web"})
    assert (page.status_code, Team.objects.count()) == (409, 1)
    answer = client.post("/api/v1/teams/", {"name": "web"}, content_type="application/json")
    assert (answer.status_code, Team.objects.count()) == (409, 1)
    assert "HEADGATE_ROOT_WORKER=1" in answer.content.decode()


def test_system_names_who_shares_an_installation_that_was_there_before(
    home: Path, settings: Any
) -> None:
    def part() -> Any:
        (found,) = [one for one in health.look(timezone.now()) if one.name == health.ROOT_WORKER]
        return found

    assert part().ok
    _user(Role.AUTHOR)
    for name in ("data", "web"):
        Team.objects.create(name=name, created_at=timezone.now())
    assert not part().ok
    assert "the teams data, web and the authors a-author" in part().sentence
    assert "HEADGATE_ROOT_WORKER=1" in part().sentence
    settings.ROOT_WORKER = True
    assert part().ok
