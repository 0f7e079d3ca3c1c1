"""Code from git: the allowed hosts, a branch resolved to a commit, and one folder of it fetched.

Git runs with the same settings as for a fetch, and the host must be listed.

Git runs without configuration, hooks, filters, prompts or submodules, and can use only the
transport of the URL. The result is read as an archive (`git archive`), so no working tree is ever
created, and passes the same checks as an upload.
"""

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from headgate_ground.files import replace_file
from queries.domain.access import Act
from queries.domain.code.references import (
    CodeHostForm,
    GitRef,
    RequestedRef,
    commit_of,
    git_problems,
    names_of,
    parse_host,
    ref_of,
    ref_problems,
    repository,
    with_commit,
)
from queries.domain.definitions.spec import Code
from queries.domain.errors import Invalid, Problem, in_words
from queries.models.grants import CodeHost
from queries.selectors.code import code_hosts, git_note
from queries.services.access.admin_objects import AdminObject, Verb
from queries.services.access.audit import record_act
from queries.services.code.packages import CommandFailed, Download, environment, run
from queries.services.code.uploads import DRAFT, unpack

#: Bytes a second; a transfer that stays slower for a minute is aborted.
_SLOWEST = 1000
_SSH = "ssh -o BatchMode=yes -o StrictHostKeyChecking=yes -o ClearAllForwardings=yes"


class FetchFailed(Exception):
    """The error that code could not be fetched; its message includes git's own output."""


def fetch(code: Code) -> None:
    """Store a commit's folder at its content-addressed location, and record that location.

    Raises `FetchFailed`. The host is checked again, because it may have been removed from the list.
    """
    if problems := git_problems(code.git, code.commit, code.folder, hosts=code_hosts()):
        raise FetchFailed(in_words(problems))
    code_dir = Path(settings.CODE_DIR)
    code_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=code_dir))
    try:
        archive = draft / "code.tar"
        _archive(code, draft, archive)
        with archive.open("rb") as file:
            sha256 = unpack(file).sha256
    except CommandFailed as error:
        raise FetchFailed(f"git could not fetch {_named(code)}: {error}") from error
    except Invalid as error:
        raise FetchFailed(f"The code of {_named(code)}: {in_words(error.problems)}") from error
    except OSError as error:
        raise FetchFailed(f"The code of {_named(code)} cannot be stored: {error}.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    note = git_note(code)
    note.parent.mkdir(mode=0o700, exist_ok=True)
    replace_file(note, sha256)


def _named(code: Code) -> str:
    return f"{code.git} at {code.commit[:12]}"


def git_command(git: str, draft: Path) -> tuple[list[str], dict[str, str], str]:
    """Return the git command for a repository, its environment, and the repository's URL.

    `draft` is a private folder in which the repository `git` can be created.
    """
    where = repository(git)
    assert where is not None, "its problems have been looked for"
    scheme = where.url.partition(":")[0].lower()
    env = environment(
        "GIT_SSL_",
        GIT_ALLOW_PROTOCOL=scheme,
        GIT_TERMINAL_PROMPT="0",
        GIT_ASKPASS="/bin/false",
        SSH_ASKPASS="/bin/false",
        GIT_SSH_COMMAND=f"{_SSH} -o ConnectTimeout=20",
        GIT_CONFIG_NOSYSTEM="1",
        GIT_CONFIG_GLOBAL="/dev/null",
        GIT_CONFIG_COUNT="0",
        GIT_ATTR_NOSYSTEM="1",
        GIT_LFS_SKIP_SMUDGE="1",
        GIT_NO_REPLACE_OBJECTS="1",
        GIT_CEILING_DIRECTORIES=str(draft),
    )
    command = ["git", "--git-dir", str(draft / "git")]
    for name, value in _settings(scheme).items():
        command += ["-c", f"{name}={value}"]
    return command, env, where.url


def _archive(code: Code, draft: Path, archive: Path) -> None:
    git, env, url = git_command(code.git, draft)
    download = Download.into(draft)

    def do(*arguments: str, output: Path | None = None) -> str:
        command = [*git, *arguments]
        return run(command, folder=draft, env=env, output=output, download=download).out

    do("init", "--quiet", "--bare", "--template=", str(draft / "git"))
    do(
        "fetch",
        "--quiet",
        "--depth=1",
        "--no-tags",
        "--no-write-fetch-head",
        url,
        code.commit,
    )
    if do("cat-file", "-t", code.commit).strip() != "commit":
        raise CommandFailed(f"{code.commit} is not a commit.")
    folder = code.folder.strip("/")
    tree = f"{code.commit}:{folder}" if folder else code.commit
    do("archive", "--format=tar", tree, output=archive)


def _settings(scheme: str) -> dict[str, str]:
    return {
        "protocol.allow": "never",
        f"protocol.{scheme}.allow": "always",
        "core.hooksPath": "/dev/null",
        "core.fsmonitor": "false",
        "core.attributesFile": "/dev/null",
        "core.symlinks": "false",
        "fetch.recurseSubmodules": "no",
        "submodule.recurse": "false",
        "fetch.fsckObjects": "true",
        "transfer.fsckObjects": "true",
        "credential.helper": "",
        "http.followRedirects": "false",  # a listed host must not redirect to another
        "http.lowSpeedLimit": str(_SLOWEST),
        "http.lowSpeedTime": "60",
        "gc.auto": "0",
        "maintenance.auto": "false",
    }


#: Time limit for a host to resolve a name, in seconds; a user is waiting.
ANSWER_S = 20.0


def resolved(
    spec: Mapping[str, Any], resolved_refs: Iterable[GitRef] = ()
) -> tuple[dict[str, Any], GitRef | None]:
    """Return an application's definition with its branch or tag resolved, and the commit.

    The commit is None if the definition specifies neither a branch nor a tag, or if it also
    specifies a commit, which is kept. `resolved_refs` contains commits that were resolved earlier
    and are not looked up again. Raises `Invalid` if the name does not exist or the host is not
    responding.
    """
    requested_ref = ref_of(spec)
    if requested_ref is None:
        return dict(spec), None
    if problems := ref_problems(requested_ref, hosts=code_hosts()):
        raise Invalid(problems)
    git_ref = next(
        (
            ref
            for ref in resolved_refs
            if (ref.git, ref.ref) == (requested_ref.git, requested_ref.ref)
        ),
        None,
    )
    if git_ref is None:
        git_ref = GitRef(
            git=requested_ref.git,
            ref=requested_ref.ref,
            commit=commit_of(requested_ref, _listed(requested_ref)),
        )
    return with_commit(spec, git_ref.commit), git_ref


def _listed(requested_ref: RequestedRef) -> str:
    """Return the host's response for the requested refs; raise `Invalid` if there is none."""
    code_dir = Path(settings.CODE_DIR)
    code_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=code_dir))
    try:
        git, env, url = git_command(requested_ref.git, draft)
        command = [*git, "ls-remote", "--quiet", url, *names_of(requested_ref.ref)]
        download = Download.into(draft, seconds=ANSWER_S)
        return run(command, folder=draft, env=env, download=download).out
    except CommandFailed as error:
        way_out = "Check the repository and the host, or set the full hash in code.commit."
        message = f"could not be queried for {requested_ref.ref}: {error}"
        raise Invalid([Problem("code.git", requested_ref.git, message, way_out)]) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def list_host(raw: Mapping[str, Any], *, actor: str, now: datetime) -> CodeHost:
    """Add a host; admins only. An existing host is returned unchanged, with 200.

    Raises `Invalid` if it is not valid.
    """
    host = parse_host(raw)
    with transaction.atomic():
        row, made = CodeHost.objects.get_or_create(
            host=host, taken_at=None, defaults={"given_at": now, "given_by": actor}
        )
        if made:
            record_act(Act.CODE_HOST, actor=actor, now=now, subject=host, did="listed")
    return row


def take_host(row: CodeHost, *, actor: str, now: datetime) -> None:
    """Remove a host: code that was already fetched remains, but no more is fetched."""
    with transaction.atomic():
        listed = CodeHost.objects.filter(pk=row.pk, taken_at=None)
        if listed.update(taken_at=now, taken_by=actor):
            record_act(Act.CODE_HOST, actor=actor, now=now, subject=row.host, did="removed")


def listed_hosts(user: Any) -> QuerySet[CodeHost]:
    """List the git hosts from which definitions can take code, newest first; admins only."""
    return CodeHost.objects.filter(taken_at=None)


GIT_HOSTS = AdminObject(
    "code-hosts/<int:host_id>/",
    "Host",
    listed_hosts,
    "Return a host; admins only.",
    create=Verb("list_code_host", list_host, CodeHostForm),
    remove=Verb("take_code_host", take_host),
    created_at="given_at",
)
