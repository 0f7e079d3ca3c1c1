"""A branch or a tag is resolved once, when it is saved or planned; its commit is what is kept."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings
from rest_framework.test import APIClient

from queries.models.applications import Application
from queries.models.grants import CodeHost
from queries.services.code import git as git_refs
from queries.services.code.git import take_host
from tests.api.faults import check_told
from tests.api.manifests.conftest import application, body
from tests.services.code.git_server import GitServer, git, listed_server
from tests.web.browserless import Page

pytestmark = pytest.mark.django_db

APPLICATIONS = "/api/v1/applications/"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[Any]:
    with listed_server(tmp_path, monkeypatch, settings) as server:
        yield server


def _code(server: GitServer, ref: str, **more: str) -> dict[str, str]:
    return {"git": server.url("streams"), "ref": ref, **more}


def _made(client: APIClient, name: str, code: dict[str, str]) -> Any:
    sent = {"name": name, "spec": {"code": code}}
    return client.post(APPLICATIONS, sent, format="json")


def _kept(name: str) -> dict[str, str]:
    spec: dict[str, Any] = Application.objects.get(name=name).revisions.latest("number").spec
    return {key: spec["code"][key] for key in ("commit", "ref")}


def _bare(server: GitServer, *arguments: str) -> str:
    return git(server.folder / "streams.git", *arguments)


def test_the_commit_of_a_branch_or_a_tag_is_kept_with_its_name(
    as_author: APIClient, server: GitServer
) -> None:
    first = server.commit("streams", {"job.py": "x = 1"})
    _bare(server, "tag", "light", first)
    _bare(server, "tag", "-a", "-m", "x", "annotated", first)
    for name in ("main", "light", "annotated", "refs/heads/main", "refs/tags/annotated"):
        made = _made(as_author, f"of-{name.replace('/', '-')}", _code(server, name))
        assert made.status_code == 201, made.content
        assert _kept(f"of-{name.replace('/', '-')}") == {"commit": first, "ref": name}
    # Repeated, it is the same application although the branch has moved on; asked again it moves.
    second = server.commit("streams", {"job.py": "x = 2"})
    assert _made(as_author, "of-main", _code(server, "main")).status_code == 200
    assert _kept("of-main")["commit"] == first
    address = f"{APPLICATIONS}of-main/"
    as_author.patch(address, {"spec": {"memory": "2g"}}, format="json")
    assert _kept("of-main")["commit"] == first
    as_author.patch(address, {"spec": {"code": {"commit": None}}}, format="json")
    assert _kept("of-main") == {"commit": second, "ref": "main"}
    as_author.patch(address, {"spec": {"code": {"ref": "light"}}}, format="json")
    assert _kept("of-main") == {"commit": first, "ref": "light"}
    as_author.patch(address, {"spec": {"code": {"commit": second}}}, format="json")
    assert _kept("of-main") == {"commit": second, "ref": ""}


def test_a_name_that_cannot_be_resolved_is_refused_with_a_way_out(
    as_author: APIClient, server: GitServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = server.commit("streams", {"job.py": "x = 1"})
    _bare(server, "tag", "main", first)

    def refused(ref: str) -> dict[str, str]:
        answer = _made(as_author, "jobs", _code(server, ref))
        assert answer.status_code == 422, answer.content
        (problem,) = answer.json()["problems"]
        check_told([problem])
        found: dict[str, str] = problem
        return found

    assert "not a branch or a tag" in refused("gone")["message"]
    both = refused("main")
    assert "both a branch and a tag" in both["message"]
    assert "refs/heads/main" in both["way_out"]
    assert refused("--upload-pack=x")["field"] == "code.ref"
    server.locked = True
    locked = refused("main")
    assert locked["field"] == "code.git"
    assert "could not be queried for main" in locked["message"]
    server.locked = False
    monkeypatch.setattr(git_refs, "ANSWER_S", 1.0)
    server.drips.set()
    began = time.monotonic()
    assert "took longer than 1 s" in refused("main")["message"]
    assert time.monotonic() - began < 20
    server.drips.clear()
    own = {
        "name": "q",
        "spec": {"sql": "SELECT 1"},
        "application_spec": {"code": _code(server, "x")},
    }
    problems = as_author.post("/api/v1/queries/", own, format="json").json()["problems"]
    assert [one["field"] for one in problems] == ["application_spec.code.ref"]


@pytest.mark.guarantee("G-CODE-2")
def test_a_host_that_no_admin_has_listed_is_not_asked(
    as_author: APIClient, server: GitServer
) -> None:
    server.commit("streams", {"job.py": "x = 1"})
    take_host(CodeHost.objects.get(), actor="ada", now=timezone.now())
    answer = _made(as_author, "jobs", _code(server, "main"))
    assert answer.status_code == 422
    assert [one["field"] for one in answer.json()["problems"]] == ["code.git"]
    assert server.asked == []


def test_who_may_not_write_python_has_no_host_asked(
    as_operator: APIClient, server: GitServer
) -> None:
    assert _made(as_operator, "jobs", _code(server, "main")).status_code == 403
    assert server.asked == []


def test_a_set_has_one_commit_for_a_branch_and_an_apply_takes_that_of_its_dry_run(
    as_author: APIClient, server: GitServer
) -> None:
    first = server.commit("streams", {"job.py": "x = 1"})
    code = _code(server, "main")
    both = (application("one", code=code), application("two", code=code))

    def apply(**more: Any) -> Any:
        answer = as_author.post("/api/v1/apply/", body(*both, **more), format="json")
        assert answer.status_code == 200, answer.content
        return answer.json()

    planned = apply(dry_run=True)
    assert planned["resolved"] == [{"git": code["git"], "ref": "main", "commit": first}]
    assert sum("info/refs" in one for one in server.asked) == 1
    second = server.commit("streams", {"job.py": "x = 2"})
    apply(resolved=planned["resolved"])
    assert _kept("one") == _kept("two") == {"commit": first, "ref": "main"}
    (change,) = apply(dry_run=True)["objects"][0]["changes"]
    assert change == {"field": "spec.code.commit", "before": first, "after": second}
    apply()
    assert _kept("one") == _kept("two") == {"commit": second, "ref": "main"}
    again = apply(dry_run=True)
    assert {one["outcome"] for one in again["objects"]} == {"unchanged"}
    assert not any(one["drift"] for one in again["objects"])


def test_the_form_resolves_a_branch_before_the_review_and_saves_what_was_reviewed(
    as_author: APIClient, client: Client, author: User, server: GitServer
) -> None:
    first = server.commit("streams", {"job.py": "x = 1"})
    as_author.post(APPLICATIONS, {"name": "jobs"}, format="json")
    client.force_login(author)
    form = Page(client, "/applications/jobs/edit/", form="definition")
    after = form.press("review", code_git=server.url("streams"), code_ref="gone")
    assert "not a branch or a tag" in after.error_at("code_ref")
    shown = after.press("review", code_ref="main")
    assert shown.fields["code_commit"] == first
    second = server.commit("streams", {"job.py": "x = 2"})
    shown.press("save")
    assert _kept("jobs") == {"commit": first, "ref": "main"}
    form = Page(client, "/applications/jobs/edit/", form="definition")
    assert "main, resolved" in form.text
    form.press("review", memory="2g").press("save")
    assert _kept("jobs") == {"commit": first, "ref": "main"}
    form = Page(client, "/applications/jobs/edit/", form="definition")
    form.press("review", code_commit="").press("save")
    assert _kept("jobs") == {"commit": second, "ref": "main"}
    form = Page(client, "/applications/jobs/edit/", form="definition")
    form.press("review", code_commit=first).press("save")
    assert _kept("jobs") == {"commit": first, "ref": ""}
