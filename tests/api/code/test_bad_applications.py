"""Bad references, digests and requirements over REST: field, value, way out, and nothing stored."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from queries.services.code.git import list_host
from tests.api.faults import check_told, definitions
from tests.domain.code.test_git_references import BAD as BAD_REFERENCES
from tests.domain.code.test_git_references import COMMIT as REFERENCE_COMMIT
from tests.domain.code.test_git_references import GOOD
from tests.domain.code.test_requirements import BAD as BAD_LINES

pytestmark = pytest.mark.django_db

APPLICATIONS = "/api/v1/applications/"
COMMIT = "0123456789" * 4
#: name -> the fields of the definition, and the field that is told.
BAD: dict[str, tuple[dict[str, Any], str]] = {
    **{
        f"git {url} {commit} {folder}": (
            {"code": {"git": url, "commit": commit, "folder": folder}},
            # Without a URL it names neither.
            field if url else "code",
        )
        for (url, commit, folder), (field, _) in BAD_REFERENCES.items()
        if commit == commit.strip()  # blanks around a value are nobody's wish
    },
    **{f"packages {line[:40]}": ({"packages": line}, "packages.0") for line in BAD_LINES},
    "a digest that is none": ({"code": {"upload": "sha256:abc"}}, "code.upload"),
    "a digest that nobody uploaded": ({"code": {"upload": f"sha256:{'0' * 64}"}}, "code.upload"),
    "a digest that leads out": ({"code": {"upload": "sha256:../../../etc"}}, "code.upload"),
    "nothing": ({"code": {}}, "code"),
    "a list": ({"code": []}, "code"),
    "a text": ({"code": "sha256:abc"}, "code"),
    "a number": ({"code": {"upload": 7}}, "code.upload"),
    "an unknown field": ({"code": {"branch": "main"}}, "code.branch"),
    "packages as a list": ({"packages": ["requests"]}, "packages"),
    "a very long URL": (
        {"code": {"git": "https://git.example.org/" + "x" * 600, "commit": COMMIT}},
        "code.git",
    ),
}

#: Of these, where nothing is given that an answer could show.
NOTHING_GIVEN = {"nothing", f"git  {REFERENCE_COMMIT} ", f"git {GOOD}  "}


@pytest.fixture
def caller(calling: Callable[[User], APIClient], author: User) -> APIClient:
    list_host({"host": "git.example.org"}, actor="ada", now=timezone.now())
    return calling(author)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_definition_is_refused_by_its_field_and_nothing_is_stored(
    caller: APIClient, name: str
) -> None:
    (spec, field), before = BAD[name], definitions()
    answer = caller.post(APPLICATIONS, {"name": "streams", "spec": spec}, format="json")
    assert answer.status_code == 422, answer.content
    problems = answer.json()["problems"]
    assert field in [one["field"] for one in problems]
    check_told(problems, nothing_given=name in NOTHING_GIVEN)
    assert "hunter2" not in answer.content.decode()
    assert definitions() == before


def test_a_good_reference_is_stored_and_read_back(caller: APIClient) -> None:
    code = {"git": "https://git.example.org/streams", "commit": COMMIT, "folder": "jobs"}
    spec = {"code": code, "packages": "requests==2.32.3\n"}
    made = caller.post(APPLICATIONS, {"name": "streams", "spec": spec}, format="json")
    assert made.status_code == 201, made.content
    assert made.json()["spec"]["code"] == {**code, "upload": "", "ref": ""}
    assert made.json()["spec"]["packages"] == "requests==2.32.3"


def test_hosts_are_listed_read_and_taken_away(as_admin: APIClient, as_author: APIClient) -> None:
    made = as_admin.post("/api/v1/code-hosts/", {"host": "Git.Example.org"}, format="json")
    assert made.status_code == 201
    assert made.json()["host"] == "git.example.org"
    assert as_admin.get(made["Location"]).json() == made.json()
    again = as_admin.post("/api/v1/code-hosts/", {"host": "git.example.org:443"}, format="json")
    assert again.json()["id"] == made.json()["id"]
    bad = as_admin.post("/api/v1/code-hosts/", {"host": "*.example.org"}, format="json")
    assert (bad.status_code, bad.json()["problems"][0]["field"]) == (422, "host")
    assert as_author.get("/api/v1/code-hosts/").status_code == 403
    assert as_admin.delete(made["Location"]).status_code == 204
    assert as_admin.get("/api/v1/code-hosts/").json()["results"] == []
