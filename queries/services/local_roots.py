"""What this host resolves: secret references, allowed paths through their links, and places outside
them.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from django.conf import settings

from queries.domain.definitions.allowed_paths import (
    AllowedPaths,
    conf_places,
    fixed_part,
    lies_in,
    places,
    resolved,
    root_of,
)
from queries.domain.definitions.locations import NotALocation, as_s3a, canonical, local_path
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Problem
from queries.secret_references import ReferenceMissing, References, SecretTooShort
from queries.selectors.hosts import below_home, host_of, hosts_with_heartbeat
from queries.selectors.secrets import given_roots


def local_references() -> References:
    """Return the resolver of the references that this installation's drivers may read."""
    return References(
        env_allowlist=tuple(settings.SECRET_ENV_ALLOWLIST), secrets_dir=str(settings.SECRETS_DIR)
    )


def length_problem(field: str, secret: str) -> Problem | None:
    """Return a problem if a referenced secret is too short; None also if it is not visible here."""
    try:
        local_references().resolve(secret)
    except SecretTooShort as error:
        where = "the secrets folder" if secret.startswith("file:") else "the worker's environment"
        way_out = (
            "Give the system that the secret is for a longer one, store it in "
            f"{where} under the same name, then try again."
        )
        return Problem(field, secret, f"{error.wrong}.", way_out)
    except ReferenceMissing:  # on another host, or not set yet
        return None
    return None


def allowed_paths(
    application: str, *, checkpoints: bool = False, granted_roots: Iterable[str] | None = None
) -> AllowedPaths:
    """Return the roots for an application's data on its host; with `checkpoints`, those too.

    `granted_roots` are the application's own, if the caller already knows them. A root that leads
    into one of the control plane's folders is omitted: a link may have been created there later.
    """
    host = host_of(application)
    roots = [*settings.ALLOWED_PATHS]
    if checkpoints:
        roots += filter(None, (str(settings.CHECKPOINTS_DIR), settings.POD_CHECKPOINTS))
    roots = [below_home(root, host) for root in roots]
    own = _own(host)
    named = given_roots(application) if granted_roots is None else granted_roots
    mine = [root_location(root) for root in named]
    return AllowedPaths(
        roots=(
            *(root_location(root) for root in roots),
            *(root for root in mine if not lies_in(root, own)),
        ),
        own=own,
    )


def checkpoints_of(application: str) -> Path:
    """Return the default folder for the checkpoints of a shared application's queries.

    The driver gets access to this folder at launch, so that it can run queries added later. No
    query name begins with "_".
    """
    return Path(follow(str(settings.CHECKPOINTS_DIR))) / f"_{application}"


def canonical_checkpoint(text: str) -> str:
    """Return a checkpoint's canonical location, with symbolic links resolved if it is local.

    `s3://` becomes `s3a://`.
    """
    return resolved(canonical(as_s3a(text)), follow)


def default_checkpoint(
    name: str, application: str, *, avoid: set[str], host: str = "", root: str = ""
) -> str:
    """Return `file://CHECKPOINTS_DIR/NAME`, numbered if an archived query left files there.

    `root` is a folder to use instead, on storage that is not local.

    For a shared application, whose name is given, the checkpoint is in that application's own
    folder. `host` is the host that runs the application; "" means that there is none yet, so this
    host's folder is used until a host takes the query.
    """
    if root:
        base = f"{root}/_{application}" if application else root
    else:
        folder = checkpoints_of(application) if application else settings.CHECKPOINTS_DIR
        base = below_home(str(folder), host)
    places = (f"{base}/{numbered_name}" for numbered_name in numbered(name))
    return next(at for location in places if (at := canonical_checkpoint(location)) not in avoid)


def numbered(name: str) -> Iterator[str]:
    """Yield a name, then the name with the numbers 2, 3, … appended, endlessly."""
    yield name
    yield from (f"{name}-{number}" for number in count(2))


def data_problems(spec: SqlQuery | PythonQuery, name: str) -> list[Problem]:
    """Return a problem for each place in a definition outside its application's allowed paths."""
    return outside_of(places(spec), name)


def conf_problems(application: ApplicationSpec, name: str) -> list[Problem]:
    """Return a problem for each place in an application's configuration outside allowed paths."""
    return outside_of(conf_places(application.conf), name)


def checkpoint_problems(location: str, name: str) -> list[Problem]:
    """Return a problem if a checkpoint's canonical location is outside the allowed paths."""
    problem = allowed_paths(name, checkpoints=True).problem("checkpoint", location, follow)
    return [problem] if problem else []


def outside_of(named: Iterable[tuple[str, str]], name: str) -> list[Problem]:
    """Return a problem for each place that is not in any root of the application.

    The roots are only looked up if there is a place, because that takes longer than the check.
    """
    locations = list(named)
    return outside(locations, allowed_paths(name)) if locations else []


def outside(named: Iterable[tuple[str, str]], roots: AllowedPaths) -> list[Problem]:
    """Return a problem for each location (field and value) outside all roots."""
    problems = (roots.problem(field, text, follow) for field, text in named if text)
    return [problem for problem in problems if problem]


def make_ours() -> None:
    """Create missing allowed paths below HEADGATE_HOME; failures are shown on the System page."""
    home = Path(settings.HEADGATE_HOME)
    for root in settings.ALLOWED_PATHS:
        if (path := local_path(root_of(root))) and Path(path).is_relative_to(home):
            with suppress(OSError):
                Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)


def missing(roots: Iterable[str], host: str = "") -> list[str]:
    """Return those local canonical roots that are not folders.

    The list is empty if the roots belong to another host, or if no worker starts drivers on this
    one.
    """
    this_host = settings.HEADGATE_HOST
    if host not in ("", this_host) or this_host not in hosts_with_heartbeat():
        return []
    paths = (local_path(root) for root in roots)
    return sorted({path for path in paths if path and not Path(path).is_dir()})


def missing_of(spec: SqlQuery | PythonQuery, name: str) -> list[str]:
    """Return the missing roots that contain places named by a query's definition."""
    used_locations = [at for _, text in places(spec) if text and (at := _location(text))]
    if not any(local_path(at) for at in used_locations):
        return []
    missing_roots = missing(allowed_paths(name).roots, host_of(name))
    return [
        root
        for root in missing_roots
        if any(lies_in(at, (f"file://{root}",)) for at in used_locations)
    ]


def _location(text: str) -> str | None:
    """Return a place as a location with links resolved; None if it is not a valid location."""
    try:
        return resolved(fixed_part(text), follow)
    except NotALocation:
        return None


def is_own(root: str) -> bool:
    """Return whether a folder is, or is in, a control plane folder, which is never allowed."""
    return lies_in(root_location(root), _own())


def _own(host: str = "") -> tuple[str, ...]:
    folders = (below_home(str(folder), host) for folder in settings.OWN_FOLDERS)
    return tuple(sorted({root_location(folder) for folder in folders}))


def follow(path: str) -> str:
    """Return a local path with its links resolved."""
    return os.path.realpath(path)  # `Path.resolve` raises an error for a loop of links


def root_location(root: str) -> str:
    """Return a root's canonical location, with links resolved."""
    location = root_of(root)
    path = local_path(location)
    return root_of(follow(path)) if path else location
