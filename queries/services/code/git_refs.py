"""Resolve a branch or tag to a commit once, before the definition is saved with it.

Git runs with the same settings as for a fetch, and the host must be listed.
"""

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings

from queries.domain.code.git_references import (
    GitRef,
    RequestedRef,
    commit_of,
    names_of,
    ref_of,
    ref_problems,
    with_commit,
)
from queries.domain.errors import Invalid, Problem
from queries.selectors.code import code_hosts
from queries.services.code.commands import CommandFailed, run
from queries.services.code.download_limits import Download
from queries.services.code.git_fetch import git_command
from queries.services.code.unpacking import DRAFT

#: Time limit for a host to resolve a name, in seconds; a user is waiting.
ANSWER_S = 20.0


def resolved(
    spec: Mapping[str, Any], resolved_refs: Iterable[GitRef] = ()
) -> tuple[dict[str, Any], GitRef | None]:
    """Return an application's definition with its branch or tag resolved, and the commit.

    The commit is None if the definition specifies neither a branch nor a tag, or if it also
    specifies a commit, which is kept. `known` contains commits that were resolved earlier and are
    not looked up again. Raises `Invalid` if the name does not exist or the host is not responding.
    """
    ref_request = ref_of(spec)
    if ref_request is None:
        return dict(spec), None
    if problems := ref_problems(ref_request, hosts=code_hosts()):
        raise Invalid(problems)
    git_ref = next(
        (ref for ref in resolved_refs if (ref.git, ref.ref) == (ref_request.git, ref_request.ref)),
        None,
    )
    if git_ref is None:
        git_ref = GitRef(
            git=ref_request.git,
            ref=ref_request.ref,
            commit=commit_of(ref_request, _listed(ref_request)),
        )
    return with_commit(spec, git_ref.commit), git_ref


def _listed(ref_request: RequestedRef) -> str:
    """Return the host's response for the requested refs; raise `Invalid` if there is none."""
    code_dir = Path(settings.CODE_DIR)
    code_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=DRAFT, dir=code_dir))
    try:
        git, env, url = git_command(ref_request.git, draft)
        command = [*git, "ls-remote", "--quiet", url, *names_of(ref_request.ref)]
        download = Download.into(draft, seconds=ANSWER_S)
        return run(command, folder=draft, env=env, download=download).out
    except CommandFailed as error:
        way_out = "Check the repository and the host, or set the full hash in code.commit."
        message = f"could not be queried for {ref_request.ref}: {error}"
        raise Invalid([Problem("code.git", ref_request.git, message, way_out)]) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
