"""A reference to git names a host that is listed, a whole commit and a folder, and nothing more."""

from typing import Any

import pytest

from queries.domain.code.references import (
    RequestedRef,
    commit_of,
    git_problems,
    names_of,
    parse_host,
    ref_of,
    ref_problems,
    repository,
    settled,
    with_commit,
)
from queries.domain.errors import Invalid

HOSTS = frozenset({"git.example.org", "git.example.org:8443", "ssh://git.example.org"})
GOOD, COMMIT = "https://git.example.org/team/streams.git", "0123456789abcdef" * 2 + "01234567"

#: (url, commit, folder) -> the field and a part of what is said.
BAD = {
    ("", COMMIT, ""): ("code.git", "not a repository"),
    ("streams", COMMIT, ""): ("code.git", "not a repository"),
    ("/srv/streams", COMMIT, ""): ("code.git", "not a repository"),
    ("../streams", COMMIT, ""): ("code.git", "not a repository"),
    ("file:///srv/streams", COMMIT, ""): ("code.git", "not a repository"),
    ("ext::sh -c touch% /tmp/x", COMMIT, ""): ("code.git", "not a repository"),
    ("git://git.example.org/x", COMMIT, ""): ("code.git", "not a repository"),
    ("http://git.example.org/x", COMMIT, ""): ("code.git", "not a repository"),
    ("ftp://git.example.org/x", COMMIT, ""): ("code.git", "not a repository"),
    ("--upload-pack=touch /tmp/x", COMMIT, ""): ("code.git", "not a repository"),
    ("https://-oProxyCommand=x/y", COMMIT, ""): ("code.git", "not a repository"),
    ("ssh://-oProxyCommand=x/y", COMMIT, ""): ("code.git", "not a repository"),
    ("ssh://-x@git.example.org/y", COMMIT, ""): ("code.git", "not a repository"),
    ("https://git.example.org", COMMIT, ""): ("code.git", "not a repository"),
    ("https://git.example.org/x?a=b", COMMIT, ""): ("code.git", "not a repository"),
    ("https://git.example.org/x#y", COMMIT, ""): ("code.git", "not a repository"),
    ("https://git.example.org/a b", COMMIT, ""): ("code.git", "not a repository"),
    ("https://git.example.org/a\nb", COMMIT, ""): ("code.git", "not a repository"),
    ("https://git.example.org/../x", COMMIT, ""): ("code.git", "not a repository"),
    ("https://git.example.org:0/x", COMMIT, ""): ("code.git", "not a repository"),
    ("https://git.example.org:99999/x", COMMIT, ""): ("code.git", "not a repository"),
    ("https://ada:hunter2@git.example.org/x", COMMIT, ""): ("code.git", "contains a user"),
    ("https://ada@git.example.org/x", COMMIT, ""): ("code.git", "contains a user"),
    ("git@git.example.org:team/x.git", COMMIT, ""): ("code.git", "is not a URL"),
    ("https://other.example.org/x", COMMIT, ""): ("code.git", "not an allowed git host"),
    ("https://git.example.org.evil.net/x", COMMIT, ""): ("code.git", "not an allowed git host"),
    ("https://git.example.org:444/x", COMMIT, ""): ("code.git", "not an allowed git host"),
    ("ssh://git@other.example.org/x", COMMIT, ""): ("code.git", "not an allowed git host"),
    ("https://127.0.0.1/x", COMMIT, ""): ("code.git", "not an allowed git host"),
    ("https://[::1]/x", COMMIT, ""): ("code.git", "not an allowed git host"),
    (GOOD, "", ""): ("code.commit", "is missing"),
    (GOOD, "main", ""): ("code.commit", "not a full commit hash"),
    (GOOD, "HEAD", ""): ("code.commit", "not a full commit hash"),
    (GOOD, COMMIT[:12], ""): ("code.commit", "not a full commit hash"),
    (GOOD, COMMIT.upper(), ""): ("code.commit", "not a full commit hash"),
    (GOOD, COMMIT + "\n", ""): ("code.commit", "not a full commit hash"),
    (GOOD, f"refs/heads/{COMMIT}", ""): ("code.commit", "not a full commit hash"),
    (GOOD, COMMIT, "../x"): ("code.folder", "not a folder"),
    (GOOD, COMMIT, "a/../b"): ("code.folder", "not a folder"),
    (GOOD, COMMIT, "a//b"): ("code.folder", "not a folder"),
    (GOOD, COMMIT, "a:b"): ("code.folder", "not a folder"),
    (GOOD, COMMIT, "a\nb"): ("code.folder", "not a folder"),
}


@pytest.mark.parametrize("reference", BAD)
def test_a_bad_reference_is_told_by_its_field(reference: tuple[str, str, str]) -> None:
    url, commit, folder = reference
    (problem,) = git_problems(url, commit, folder, hosts=HOSTS)
    field, said = BAD[reference]
    assert problem.field == field
    assert said in problem.message
    assert problem.way_out
    assert "hunter2" not in f"{problem.value}{problem.message}{problem.way_out}"


@pytest.mark.parametrize(
    "url",
    [
        GOOD,
        f"{GOOD}/",
        "https://GIT.example.org:443/x",
        "https://git.example.org:8443/a/b-c/d_e.f",
        "ssh://git@git.example.org/team/x.git",
        "ssh://git.example.org:22/~ada/x",
    ],
)
@pytest.mark.parametrize("folder", ["", "jobs", "/jobs/a b/", "a-b/c_d.e"])
def test_a_reference_to_a_listed_host_is_taken(url: str, folder: str) -> None:
    assert git_problems(url, COMMIT, folder, hosts=HOSTS) == []
    assert git_problems(url, "0" * 64, folder, hosts=HOSTS) == []
    assert repository(url) is not None


@pytest.mark.parametrize(
    "url",
    [
        "https://ada:hunter2@git.example.org/x",
        "https://hunter2@git.example.org/x",
        "https://ada:hun/ter2@git.example.org/x",
        "ssh://ada:hunter2@git.example.org/x",
        "https://git.example.org/x?token=hunter2",
    ],
)
def test_a_refusal_does_not_show_what_may_be_a_password(url: str) -> None:
    (problem,) = git_problems(url, COMMIT, "", hosts=HOSTS)
    assert "git.example.org" in problem.value
    assert "ter2" not in f"{problem}"


def test_a_port_is_shown() -> None:
    (problem,) = git_problems("https://git.example.org:99999/x", COMMIT, "", hosts=HOSTS)
    assert problem.value == "https://git.example.org:99999/x"


def test_where_no_host_is_listed_it_is_said() -> None:
    (problem,) = git_problems(GOOD, COMMIT, "", hosts=frozenset())
    assert "No hosts have been added yet" in problem.way_out


@pytest.mark.parametrize(
    ("given", "listed"),
    [
        ("Git.Example.org", "git.example.org"),
        ("https://git.example.org/", "git.example.org"),
        ("git.example.org:443", "git.example.org"),
        ("git.example.org:8443", "git.example.org:8443"),
        ("ssh://git.example.org:22", "ssh://git.example.org"),
        ("localhost:9", "localhost:9"),
    ],
)
def test_a_host_is_listed_in_one_form(given: str, listed: str) -> None:
    assert parse_host({"host": given}) == listed


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"host": ""},
        {"host": "*"},
        {"host": "*.example.org"},
        {"host": "git.example.org/team"},
        {"host": "http://git.example.org"},
        {"host": "ext::sh"},
        {"host": "a b"},
        {"host": "git.example.org:0"},
        {"host": "git.example.org:70000"},
        {"host": "-x"},
        {"host": "a." * 200 + "org"},
        {"host": "a", "more": "b"},
    ],
)
def test_what_is_no_host_is_not_listed(form: dict[str, str]) -> None:
    with pytest.raises(Invalid) as refused:
        parse_host(form)
    assert refused.value.problems[0].way_out


# --- branches and tags ----------------------------------------------------------------------
OTHER, THIRD = "a" * 40, "b" * 64


@pytest.mark.parametrize(
    ("ref", "listed", "commit"),
    [
        ("main", f"{COMMIT}\trefs/heads/main\n", COMMIT),
        ("main", f"{OTHER}\trefs/x/refs/heads/main\n{COMMIT}\trefs/heads/main\n", COMMIT),
        ("v1", f"{COMMIT}\trefs/tags/v1\n", COMMIT),
        ("v1", f"{OTHER}\trefs/tags/v1\n{THIRD}\trefs/tags/v1^{{}}\n", THIRD),
        ("refs/heads/v1", f"{COMMIT}\trefs/heads/v1\n", COMMIT),
        ("refs/tags/v1", f"{OTHER}\trefs/tags/v1\n{COMMIT}\trefs/tags/v1^{{}}\n", COMMIT),
    ],
)
def test_a_name_means_the_commit_of_the_branch_or_of_what_the_tag_points_at(
    ref: str, listed: str, commit: str
) -> None:
    assert commit_of(RequestedRef(GOOD, ref), listed) == commit


@pytest.mark.parametrize(
    ("ref", "listed", "said"),
    [
        ("main", "", "not a branch or a tag"),
        ("main", "warning: something\n", "not a branch or a tag"),
        ("main", f"{OTHER}\trefs/x/refs/heads/main\n", "not a branch or a tag"),
        ("v1", f"{OTHER}\trefs/heads/v1\n{COMMIT}\trefs/tags/v1\n", "both a branch and a tag"),
    ],
)
def test_a_name_of_nothing_or_of_two_things_is_refused(ref: str, listed: str, said: str) -> None:
    with pytest.raises(Invalid) as caught:
        commit_of(RequestedRef(GOOD, ref), listed)
    (problem,) = caught.value.problems
    assert (problem.field, problem.value) == ("code.ref", ref)
    assert said in problem.message
    assert problem.way_out


def test_a_name_may_be_a_branch_or_a_tag_and_a_full_name_is_one() -> None:
    assert names_of("v1") == ("refs/heads/v1", "refs/tags/v1", "refs/tags/v1^{}")
    assert names_of("refs/heads/v1") == ("refs/heads/v1", "refs/heads/v1^{}")


@pytest.mark.parametrize("ref", ["main", "release/2.1", "refs/tags/v1", "fix-#7", "Ärger", "x@y"])
def test_a_name_that_git_takes_is_asked_for(ref: str) -> None:
    assert ref_problems(RequestedRef(GOOD, ref), hosts=HOSTS) == []


@pytest.mark.parametrize(
    "ref",
    [
        "-x",
        "--upload-pack=x",
        "a..b",
        "a//b",
        "/a",
        "a/",
        "a.",
        "a/.b",
        "a.lock",
        "a b",
        "a*",
        "a\nb",
    ]
    + ["a?", "a[b]", "a^{}", "a~1", "a:b", "a@{1}", "a" * 251],
)
def test_a_name_that_may_mean_something_else_is_not_asked_for(ref: str) -> None:
    (problem,) = ref_problems(RequestedRef(GOOD, ref), hosts=HOSTS)
    assert problem.field == "code.ref"
    (problem,) = ref_problems(RequestedRef(GOOD, "main"), hosts=frozenset())
    assert problem.field == "code.git"


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        ({"git": GOOD, "ref": "main"}, RequestedRef(GOOD, "main")),
        ({"git": GOOD, "ref": "main", "commit": ""}, RequestedRef(GOOD, "main")),
        ({"git": GOOD, "ref": "main", "commit": COMMIT}, None),
        ({"git": GOOD, "ref": ""}, None),
        ({"git": GOOD, "ref": 7}, None),
        ({"ref": "main"}, None),
        ([], None),
        (None, None),
    ],
)
def test_a_branch_is_resolved_where_no_commit_is_named(
    code: Any, asked: RequestedRef | None
) -> None:
    assert ref_of({"code": code}) == asked
    if asked is not None:
        spec = with_commit({"code": code, "memory": "1g"}, COMMIT)
        assert spec == {"code": {**code, "commit": COMMIT}, "memory": "1g"}


BEFORE = {"git": GOOD, "commit": COMMIT, "ref": "main"}


@pytest.mark.parametrize(
    ("edited", "expected"),
    [
        ({}, {}),
        ({"ref": "dev"}, {"ref": "dev", "commit": ""}),  # resolved again
        ({"commit": OTHER}, {"commit": OTHER, "ref": ""}),  # the branch says nothing of it
        ({"commit": OTHER, "ref": "dev"}, {"commit": OTHER, "ref": "dev"}),
        ({"git": f"{GOOD}x"}, {"git": f"{GOOD}x", "ref": ""}),
        ({"ref": ""}, {"ref": ""}),
    ],
)
def test_a_branch_and_a_commit_agree_after_an_edit(
    edited: dict[str, str], expected: dict[str, str]
) -> None:
    spec = {"code": {**BEFORE, **edited}}
    assert settled(spec, {"code": BEFORE}) == {"code": {**BEFORE, **expected}}


def test_code_that_is_new_is_taken_as_it_is() -> None:
    assert settled({"code": BEFORE}, {}) == {"code": BEFORE}
    assert settled({"code": None}, {"code": BEFORE}) == {"code": None}
