"""Fetch one folder of a git commit, without running anything from the repository.

Git runs without configuration, hooks, filters, prompts or submodules, and can use only the
transport of the URL. The result is read as an archive (`git archive`), so no working tree is ever
created, and passes the same checks as an upload.
"""

import shutil
import tempfile
from pathlib import Path

from django.conf import settings

from headgate_ground.files import replace_file
from queries.domain.code.git_references import git_problems, repository
from queries.domain.definitions.spec import Code
from queries.domain.errors import Invalid, in_words
from queries.selectors.code import code_hosts, git_note
from queries.services.code.commands import CommandFailed, environment, run
from queries.services.code.download_limits import Download
from queries.services.code.unpacking import DRAFT, unpack

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
