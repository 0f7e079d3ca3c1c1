"""References to code in git: where a repository is, which commit, which folder of it.

Only whole commit hashes: a branch or a tag is another thing tomorrow, and a run must be able to
say what it ran. The host must be one that an admin has listed.
"""

import re
from dataclasses import dataclass

from pydantic import ValidationError

from queries.domain.definitions.parsing import shape_problems
from queries.domain.definitions.spec import StrictForm
from queries.domain.errors import Invalid, Problem
from queries.domain.masking import MASK, mask_text

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_NAME = r"(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*"
_HOST = re.compile(
    rf"(?:(ssh|https)://)?({_NAME}|\[[0-9a-f:]+\])(?::(\d{{1,5}}))?/?", re.IGNORECASE
)
_URL = re.compile(
    rf"(https|ssh)://(?:([A-Za-z_][\w.-]{{0,31}})@)?({_NAME}|\[[0-9a-f:]+\])(?::(\d{{1,5}}))?"
    r"(/[\w.~+/-]*[\w])/?",
    re.IGNORECASE,
)
_FOLDER = re.compile(r"[\w.+ -]+(?:/[\w.+ -]+)*")
_URL_WAY_OUT = "Write https://host/path of the repository."
_PORTS = {"https": 443, "ssh": 22}


@dataclass(frozen=True, slots=True)
class Repository:
    """Where a repository is."""

    url: str  # as git is given it
    host: str  # as an admin lists it: "host", "host:port", "ssh://host"


class CodeHostForm(StrictForm):
    """A host that definitions may take code from."""

    host: str


def parse_host(raw: object) -> str:
    """Return a host as it is listed; raise `Invalid` where it is none.

    https goes without saying, and so do the ports that belong to https and ssh.
    """
    try:
        form = CodeHostForm.model_validate(raw)
    except ValidationError as error:
        raise Invalid(shape_problems(error)) from error
    found = _HOST.fullmatch(form.host)
    if found is None or len(form.host) > 255 or int(found[3] or 1) not in range(1, 65536):
        way_out = "Write git.example.org, git.example.org:8443 or ssh://git.example.org."
        message = "is not a host that git can be asked at."
        raise Invalid([Problem("host", form.host[:200], message, way_out)])
    return _listed(found[1] or "https", found[2], found[3])


def _listed(scheme: str, host: str, port: str | None) -> str:
    scheme = scheme.lower()
    at = "" if port is None or int(port) == _PORTS[scheme] else f":{int(port)}"
    return f"{'ssh://' if scheme == 'ssh' else ''}{host.lower()}{at}"


def repository(url: str) -> Repository | None:
    """Return where a URL leads; None where it is no URL of git's that is taken here."""
    found = _URL.fullmatch(url)
    if found is None or ".." in found[5] or int(found[4] or 1) not in range(1, 65536):
        return None
    if found[2] and found[1].lower() == "https":  # a user, and soon a password, in a definition
        return None
    return Repository(url.rstrip("/"), _listed(found[1], found[3], found[4]))


def git_problems(url: str, commit: str, folder: str, *, hosts: frozenset[str]) -> list[Problem]:
    """Return what is wrong with a reference; `hosts` are those that an admin has listed."""
    problems = _url_problems(url, hosts)
    if not _COMMIT.fullmatch(commit):
        message = "is not a full commit hash." if commit else "is missing."
        way_out = "Write the 40 hexadecimal digits that `git rev-parse HEAD` prints."
        problems.append(Problem("code.commit", commit[:200], message, way_out))
    inside = folder.strip("/")
    if inside and not (_FOLDER.fullmatch(inside) and ".." not in inside.split("/")):
        way_out = "Write it relative to the repository, such as jobs/orders."
        message = "is not a folder of the repository."
        problems.append(Problem("code.folder", folder[:200], message, way_out))
    return problems


def _shown(url: str) -> str:
    """Return the beginning of an address without what may be a password.

    In https a user alone may be a token; a password that was not encoded may hold a slash.
    """
    secrets = r"(https?://)[^/@]*@|(//)[^/@]*:[^@]*@"
    plain = re.sub(secrets, lambda found: f"{found[1] or found[2]}{MASK}@", url[:500])
    return mask_text(plain)[:200]


def _url_problems(url: str, hosts: frozenset[str]) -> list[Problem]:
    def refused(message: str, way_out: str) -> list[Problem]:
        return [Problem("code.git", _shown(url), message, way_out)]

    where = repository(url)
    if where is None and re.match(r"https?://[^/]*@", url):
        way_out = "Leave user and password out; docs/code.md says where credentials belong."
        return refused("contains a user.", way_out)
    if where is None:
        if re.fullmatch(r"[\w.-]+@[\w.-]+:(?!/).+", url):
            return refused("is not a URL.", "Write ssh://git@host/path.")
        return refused("is not a repository that code is taken from.", _URL_WAY_OUT)
    if where.host not in hosts:
        listed = f" Listed are {', '.join(sorted(hosts))}." if hosts else " None is listed yet."
        return refused(
            f"is at {where.host}, which no admin has listed.",
            f"Ask an admin to list the host (Settings → Git hosts).{listed}",
        )
    return []
