"""The data roots of this host, links resolved."""

from pathlib import Path

from django.conf import settings

from queries.domain.definitions.data_roots import DataRoots, resolved
from queries.domain.definitions.locations import canonical


def data_roots(*, checkpoints: bool = False) -> DataRoots:
    """Return where data may lie on this host; with `checkpoints`, where those may too."""
    roots = [*settings.DATA_ROOTS, *([str(settings.CHECKPOINTS_DIR)] if checkpoints else [])]
    return DataRoots(
        roots=tuple(_root_location(root) for root in roots),
        own=tuple(sorted({_root_location(str(folder)) for folder in settings.OWN_FOLDERS})),
    )


def follow(path: str) -> str:
    """Return a local path with its links followed."""
    return str(Path(path).resolve())


def _root_location(root: str) -> str:
    return "file://" if root == "/" else resolved(canonical(root), follow)
