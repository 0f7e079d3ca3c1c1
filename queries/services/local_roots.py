"""The data roots of this host, links resolved, and what of a definition lies outside of them."""

from collections.abc import Iterable
from pathlib import Path

from django.conf import settings

from queries.domain.definitions.data_roots import (
    DataRoots,
    conf_places,
    lies_in,
    places,
    root_of,
)
from queries.domain.definitions.locations import local_path
from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Problem
from queries.selectors.secrets import given_roots


def data_roots(
    application: str, *, checkpoints: bool = False, given: Iterable[str] | None = None
) -> DataRoots:
    """Return where an application's data may lie on this host; with `checkpoints`, those too.

    `given` are the roots of its own, where the caller knows them already. One that leads into a
    folder of the control plane's is left out: a link may have been put there since.
    """
    roots = [*settings.DATA_ROOTS, *([str(settings.CHECKPOINTS_DIR)] if checkpoints else [])]
    own = _own()
    named = given_roots(application) if given is None else given
    mine = [_root_location(root) for root in named]
    return DataRoots(
        roots=(
            *(_root_location(root) for root in roots),
            *(root for root in mine if not lies_in(root, own)),
        ),
        own=own,
    )


def checkpoints_of(application: str) -> Path:
    """Return where the checkpoints of a shared application's queries are by default.

    Its driver is given the folder when it starts, so that it can host queries that are added
    later. No query's name begins with "_".
    """
    return Path(follow(str(settings.CHECKPOINTS_DIR))) / f"_{application}"


def data_problems(spec: SqlQuery | PythonQuery, name: str) -> list[Problem]:
    """Return a problem for each place of a definition outside of its application's data roots."""
    return outside(places(spec), data_roots(name))


def conf_problems(application: ApplicationSpec, name: str) -> list[Problem]:
    """Return a problem for each place of an application's configuration that is."""
    return outside(conf_places(application.conf), data_roots(name))


def checkpoint_problems(location: str, name: str) -> list[Problem]:
    """Return a problem where a checkpoint's canonical location is."""
    found = data_roots(name, checkpoints=True).problem("checkpoint", location, follow)
    return [found] if found else []


def outside(named: Iterable[tuple[str, str]], roots: DataRoots) -> list[Problem]:
    """Return a problem for each place, by field and text, that no root holds."""
    found = (roots.problem(field, text, follow) for field, text in named if text)
    return [problem for problem in found if problem]


def is_own(root: str) -> bool:
    """Return whether a folder is the control plane's own, or lies in one: never a data root."""
    return lies_in(_root_location(root), _own())


def _own() -> tuple[str, ...]:
    return tuple(sorted({_root_location(str(folder)) for folder in settings.OWN_FOLDERS}))


def follow(path: str) -> str:
    """Return a local path with its links followed."""
    return str(Path(path).resolve())


def _root_location(root: str) -> str:
    location = root_of(root)
    path = local_path(location)
    return root_of(follow(path)) if path else location
