"""References from a definition to code: a folder in a git repository, and the packages required
by name.

Definitions store full commit hashes: a branch or tag can move, and a run must be able to report its
code. A branch or tag without a commit is resolved before the definition is saved. The host must be
one that an admin has listed.

Wheels come from the installation's own index. A line that specifies a file, a URL, another index or
an editable project is rejected, because it would install something that no admin has provided.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from headgate_ground.masking import MASK, mask_text
from queries.domain.definitions.parsing import parsed
from queries.domain.definitions.spec import LONGEST_REQUIREMENTS as LONGEST
from queries.domain.definitions.spec import Longest, StrictForm
from queries.domain.errors import Invalid, Problem

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
_URL_WAY_OUT = "Write the repository as https://host/path."
_PORTS = {"https": 443, "ssh": 22}


#: A subset of git's valid ref names (git-check-ref-format), excluding its pattern characters.
_REF = re.compile(r"(?!.*(?:\.\.|//|/\.|\.lock(?:/|$)|@\{))[\w][\w./+@#=,%-]*(?<![./])")
_HEADS, _TAGS = "refs/heads/", "refs/tags/"


class GitRef(StrictForm):
    """The ref that a branch or tag was resolved to."""

    git: str
    ref: str
    commit: str


@dataclass(frozen=True, slots=True)
class RequestedRef:
    """A branch or tag to resolve."""

    git: str
    ref: str


@dataclass(frozen=True, slots=True)
class Repository:
    """The location of a repository."""

    url: str  # as passed to git
    host: str  # as an admin lists it: "host", "host:port", "ssh://host"


class CodeHostForm(StrictForm):
    """A host to add.

    host: git.example.org, git.example.org:8443 or ssh://git.example.org.
    """

    host: Annotated[str, Longest(255)]


def parse_host(raw: Mapping[str, Any]) -> str:
    """Return a host in the form it is listed in; raise `Invalid` if it is not a host.

    The https scheme and the default ports of https and ssh are left out.
    """
    form = parsed(CodeHostForm.model_validate, raw)
    match = _HOST.fullmatch(form.host)
    if match is None or len(form.host) > 255 or int(match[3] or 1) not in range(1, 65536):
        way_out = "Write git.example.org, git.example.org:8443 or ssh://git.example.org."
        message = "is not a valid git host."
        raise Invalid([Problem("host", form.host[:200], message, way_out)])
    return _listed(match[1] or "https", match[2], match[3])


def _listed(scheme: str, host: str, port: str | None) -> str:
    scheme = scheme.lower()
    at = "" if port is None or int(port) == _PORTS[scheme] else f":{int(port)}"
    return f"{'ssh://' if scheme == 'ssh' else ''}{host.lower()}{at}"


def repository(url: str) -> Repository | None:
    """Return a URL's repository; None if it is not a git URL of a supported kind."""
    match = _URL.fullmatch(url)
    if match is None or ".." in match[5] or int(match[4] or 1) not in range(1, 65536):
        return None
    if match[2] and match[1].lower() == "https":  # a user, and soon a password, in a definition
        return None
    return Repository(url.rstrip("/"), _listed(match[1], match[3], match[4]))


def git_problems(url: str, commit: str, folder: str, *, hosts: frozenset[str]) -> list[Problem]:
    """Return what is wrong with a reference; `hosts` are those that an admin has listed."""
    problems = _url_problems(url, hosts)
    if not _COMMIT.fullmatch(commit):
        message = "is not a full commit hash." if commit else "is missing."
        way_out = (
            "Write the 40 hexadecimal digits that `git rev-parse HEAD` prints, or remove it "
            "and set a branch or tag in code.ref."
        )
        problems.append(Problem("code.commit", commit[:200], message, way_out))
    inside = folder.strip("/")
    if inside and not (_FOLDER.fullmatch(inside) and ".." not in inside.split("/")):
        way_out = "Write a path relative to the repository, such as jobs/orders."
        message = "is not a folder in the repository."
        problems.append(Problem("code.folder", folder[:200], message, way_out))
    return problems


def ref_of(spec: Mapping[str, Any]) -> RequestedRef | None:
    """Return the ref to resolve before saving a definition of any shape; None if there is none."""
    code = spec.get("code")
    if not isinstance(code, Mapping) or code.get("commit"):
        return None
    git, ref = code.get("git"), code.get("ref")
    return RequestedRef(git, ref) if isinstance(git, str) and isinstance(ref, str) and ref else None


def settled(spec: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition whose commit and branch agree, based on the edits since `before`.

    A new branch with the old commit must be resolved; a new commit with the old branch drops the
    branch.
    """
    code, old = spec.get("code"), before.get("code") or {}
    if not isinstance(code, Mapping) or not code.get("commit") or not code.get("ref"):
        return dict(spec)
    same_commit = code["commit"] == old.get("commit") and code.get("git") == old.get("git")
    if same_commit and code["ref"] != old.get("ref"):
        return with_commit(spec, "")
    if not same_commit and code["ref"] == old.get("ref"):
        return {**spec, "code": {**code, "ref": ""}}
    return dict(spec)


def with_commit(spec: Mapping[str, Any], commit: str) -> dict[str, Any]:
    """Return a definition whose code is at this commit."""
    return {**spec, "code": {**spec["code"], "commit": commit}}


def ref_problems(ref: RequestedRef, *, hosts: frozenset[str]) -> list[Problem]:
    """Return why a ref cannot be resolved; `hosts` are those listed by an admin."""
    problems = _url_problems(ref.git, hosts)
    if len(ref.ref) > 250 or not _REF.fullmatch(ref.ref):
        way_out = "Use a branch or tag, such as main, v1.2, refs/heads/main or refs/tags/v1.2."
        message = "is not the name of a branch or a tag."
        problems.append(Problem("code.ref", ref.ref[:200], message, way_out))
    return problems


def names_of(ref: str) -> tuple[str, ...]:
    """Return the full ref names that a short name can mean; for a tag, also its target."""
    if ref.startswith("refs/"):
        return (ref, f"{ref}^{{}}")
    return (f"{_HEADS}{ref}", f"{_TAGS}{ref}", f"{_TAGS}{ref}^{{}}")


def commit_of(requested_ref: RequestedRef, listed: str) -> str:
    """Return the commit for a ref name, from the output of `git ls-remote`.

    Raises `Invalid` if there is none, or if the name is both a branch and a tag.
    """
    lines = (line.partition("\t") for line in listed.splitlines())
    commits = {name: sha for sha, _, name in lines if _COMMIT.fullmatch(sha)}
    *branches, tagged, pointed = names_of(requested_ref.ref)
    branch = next((commits[name] for name in branches if name in commits), None)
    tag = commits.get(pointed) or commits.get(tagged)
    if branch and tag:
        way_out = f"Write {_HEADS}{requested_ref.ref} or {_TAGS}{requested_ref.ref}."
        message = "is both a branch and a tag."
        raise Invalid([Problem("code.ref", requested_ref.ref, message, way_out)])
    commit = branch or tag
    if commit is None:
        message = f"is not a branch or a tag of {requested_ref.git}."
        way_out = "Correct the name, or set the full hash in code.commit."
        raise Invalid([Problem("code.ref", requested_ref.ref, message, way_out)])
    return commit


def _shown(url: str) -> str:
    """Return the beginning of a URL, without anything that may be a password.

    An https user name may itself be a token, and an unencoded password may contain a slash.
    """
    secrets = r"(https?://)[^/@]*@|(//)[^/@]*:[^@]*@"
    plain = re.sub(secrets, lambda found: f"{found[1] or found[2]}{MASK}@", url[:500])
    return mask_text(plain)[:200]


def _url_problems(url: str, hosts: frozenset[str]) -> list[Problem]:
    def refused(message: str, way_out: str) -> list[Problem]:
        return [Problem("code.git", _shown(url), message, way_out)]

    where = repository(url)
    if where is None and re.match(r"https?://[^/]*@", url):
        way_out = "Remove the user and password; docs/code.md describes where credentials belong."
        return refused("contains a user name.", way_out)
    if where is None:
        if re.fullmatch(r"[\w.-]+@[\w.-]+:(?!/).+", url):
            return refused("is not a URL.", "Write ssh://git@host/path.")
        return refused("is not a repository URL that Headgate can use.", _URL_WAY_OUT)
    if where.host not in hosts:
        listed = (
            f" Allowed hosts: {', '.join(sorted(hosts))}."
            if hosts
            else (" No hosts have been added yet.")
        )
        return refused(
            f"is on {where.host}, which is not an allowed git host.",
            f"Ask an admin to add the host (Settings → Git hosts).{listed}",
        )
    return []


MOST_LINES = 200
_FIELD = "packages"
_VERSIONS = 'Write names with versions, one per line, such as "requests==2.32.3".'
_PATH = re.compile(r"\.{0,2}/|~|[A-Za-z]:[\\/]|.*\.(whl|zip|tar\.gz|tgz)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedRequirements:
    """Parsed requirements, and what is wrong with them."""

    lines: tuple[str, ...]  # normalised and sorted
    problems: tuple[Problem, ...]

    @property
    def text(self) -> str:
        """Return the normalised text; equal requirements have the same text."""
        return "".join(f"{line}\n" for line in self.lines)


def read(text: str) -> ParsedRequirements:
    """Parse requirements; comments and empty lines are ignored."""
    if len(text) > LONGEST or text.count("\n") > MOST_LINES * 2:
        message = f"has more than {MOST_LINES} lines or {LONGEST:,} characters."
        size = f"{len(text):,} characters in {text.count(chr(10)) + 1:,} lines"
        return ParsedRequirements(
            (), (Problem(_FIELD, size, message, "List only packages that the code imports."),)
        )
    by_package: dict[str, str] = {}
    problems: list[Problem] = []
    for number, raw in enumerate(text.splitlines()):
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        if not line:
            continue
        wish = _requirement(f"{_FIELD}.{number}", line)
        if isinstance(wish, Problem):
            problems.append(wish)
            continue
        # Two lines may name the same package if their markers differ.
        key = f"{canonicalize_name(wish.name)};{wish.marker or ''}"
        if key in by_package and by_package[key] != str(wish):
            message = "conflicts with another line that requires the same package."
            problems.append(
                Problem(f"{_FIELD}.{number}", line[:200], message, "Keep one of the two.")
            )
        by_package[key] = str(wish)
    if len(by_package) > MOST_LINES:
        message = f"names more than {MOST_LINES} packages."
        size = f"{len(by_package):,} packages"
        problems.append(Problem(_FIELD, size, message, "List only packages that the code imports."))
    return ParsedRequirements(tuple(sorted(by_package.values())), tuple(problems))


def _requirement(field: str, line: str) -> Requirement | Problem:
    shown = re.sub(r"://[^/@\s]*@", "://", line)[:200]  # remove passwords from URLs

    def refused(message: str, way_out: str = _VERSIONS) -> Problem:
        return Problem(field, shown, message, way_out)

    if any(not c.isprintable() and c != "\t" for c in line):
        plain = "".join(c if c.isprintable() else "�" for c in shown)
        return Problem(field, plain, "contains a control character.", _VERSIONS)
    if line.startswith("-"):
        return refused(
            "is an installer option.",
            "Remove it: the installation sets the index and cache, and only wheels are used.",
        )
    if "://" in line or re.match(r"(git|hg|svn|bzr)\+|file:", line):
        return refused("is a URL.", "Use the package name; its wheel comes from the index.")
    if _PATH.match(line):
        return refused("is a file or folder.", "Use the package name, or upload the code instead.")
    if line.endswith("\\"):
        return refused("continues on the next line.", "Write each requirement on one line.")
    if re.search(r"\s--\w", line):
        return refused("contains an option.", "Remove the option.")
    try:
        wish = Requirement(line)
    except InvalidRequirement:
        return refused("is not a valid requirement.")
    if wish.url:
        return refused("is a URL.", "Use the package name; its wheel comes from the index.")
    if len(str(wish.specifier)) > 500 or len(wish.name) > 200:
        return refused("is too long.")
    return wish
