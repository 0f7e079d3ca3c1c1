"""Refuse to start where drivers had host accounts of their own, as in Headgate 0.1.0.

Their files belong to those accounts. Drivers no longer run as them, so the files are out of reach
until an admin has given them to the worker's account. Starting drivers all the same would mean to
start them without the isolation that they had.
"""

import json
import os
import pwd
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError

from queries.domain.definitions.locations import local_path
from queries.models.definitions import Checkpoint
from queries.selectors.secrets import all_given_roots
from queries.services.local_roots import root_location

MODE = "accounts"  # of HEADGATE_WALLS
FILE = "accounts.json"  # which application had which account


def refusal() -> str:
    """Return why no worker may start here, with the commands that change that; "" if it may."""
    file = settings.HEADGATE_HOME / FILE
    if not os.path.lexists(file) and settings.WALLS != MODE:
        return ""
    return "\n".join(
        [
            "This worker does not start: drivers no longer run under host accounts of their own "
            "(HEADGATE_WALLS=accounts), and it starts none with less isolation than that.",
            "1. Give the accounts' files to the worker's account. As root, on this host:",
            *(f"     {line}" for line in _commands(file)),
            "2. Set HEADGATE_WALLS to bubblewrap (docs/operations.md says what that needs), and "
            "remove HEADGATE_WALLS_ACCOUNTS.",
            "3. Start the worker again.",
        ]
    )


def _commands(file: Path) -> Iterator[str]:
    """Yield the commands, for the accounts that exist and for files of those that do not.

    `chown --from` changes only what belongs to an account, and `-h` no target of a link, so neither
    a link nor another name of a file, which a driver may have left, takes a file from others.
    """
    ours, group = os.geteuid(), os.getegid()
    folders = shlex.join(_folders())
    names = _accounts(file)
    accounts = [
        entry
        for entry in pwd.getpwall()
        if entry.pw_name in (names or ()) and entry.pw_uid not in (0, ours)
    ]
    for entry in accounts:
        yield f"pkill -KILL -u {entry.pw_uid}  # drivers that still run as {entry.pw_name}"
        yield f"chown -R -h --from={entry.pw_uid} {ours}:{group} {folders}"
        yield f"chown -R -h --from=:{entry.pw_gid} :{group} {folders}"
    if names is None:
        yield f"find {folders} ! -user {ours}  # {FILE} is unreadable: chown what accounts had"
    elif len(accounts) < len(names):
        missing = sorted(names - {entry.pw_name for entry in accounts})
        yield f"find {folders} -nouser  # chown what {', '.join(missing)} had: no such account"
    yield shlex.join(["chmod", "700", str(settings.HEADGATE_HOME)])
    yield shlex.join(["rm", "-f", str(file)])


def _accounts(file: Path) -> set[str] | None:
    """Return the names of the accounts that applications had; None if the file is unreadable."""
    try:
        return {str(name) for name in json.loads(file.read_text(encoding="utf-8")).values()}
    except FileNotFoundError:
        return None if os.path.lexists(file) else set()
    except (OSError, ValueError, AttributeError):
        return None


def _folders() -> list[str]:
    """Return the local folders that may hold files of drivers, none inside another, but not "/"."""
    folders = {settings.HEADGATE_HOME, settings.CHECKPOINTS_DIR}
    roots = list(settings.DATA_ROOTS)
    with suppress(DatabaseError):  # else the commands do without what only the database knows
        roots += [
            root for application_roots in all_given_roots().values() for root in application_roots
        ]
        locations = Checkpoint.objects.values_list("location", flat=True).distinct()
        folders |= {Path(path).parent for path in map(local_path, locations) if path is not None}
    local = (local_path(root_location(root)) for root in roots)
    folders |= {Path(path) for path in local if path is not None}
    folders = {Path(os.path.realpath(path)) for path in folders} - {Path("/")}
    return sorted(
        str(path)
        for path in folders
        if not any(path.is_relative_to(other) for other in folders - {path})
    )
