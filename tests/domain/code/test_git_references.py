"""A reference to git names a host that is listed, a whole commit and a folder, and nothing more."""

import pytest

from queries.domain.code.git_references import git_problems, parse_host, repository
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
    ("https://other.example.org/x", COMMIT, ""): ("code.git", "no admin has listed"),
    ("https://git.example.org.evil.net/x", COMMIT, ""): ("code.git", "no admin has listed"),
    ("https://git.example.org:444/x", COMMIT, ""): ("code.git", "no admin has listed"),
    ("ssh://git@other.example.org/x", COMMIT, ""): ("code.git", "no admin has listed"),
    ("https://127.0.0.1/x", COMMIT, ""): ("code.git", "no admin has listed"),
    ("https://[::1]/x", COMMIT, ""): ("code.git", "no admin has listed"),
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
    assert "None is listed yet" in problem.way_out


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
