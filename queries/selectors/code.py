"""Where an application's code and packages lie on this host, and whether they are there yet.

Both have a place that their content or their wish names, so that going back to a revision finds
what it ran with. `queries.services.code.preparing` puts them there.
"""

import hashlib
import platform
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from django.conf import settings
from packaging.utils import canonicalize_name

from queries.code_roots import kept_root
from queries.domain.code import requirements
from queries.domain.code.digests import sha256_of
from queries.domain.code.shipping import SHIPPED
from queries.domain.definitions.spec import ApplicationSpec, Code
from queries.files import read_file
from queries.models.grants import CodeHost

#: Ending of a file that says, in words, why something could not be put into its place.
FAILED = ".failed"


def code_hosts() -> frozenset[str]:
    """Return the hosts that definitions may take code from."""
    return frozenset(CodeHost.objects.filter(taken_at=None).values_list("host", flat=True))


def git_note(code: Code) -> Path:
    """Return the file that names the content of a folder of a commit, once it is fetched."""
    return note_of(code.git, code.commit, code.folder)


def note_of(git: str, commit: str, folder: str) -> Path:
    """Return the same file for a repository, a commit and a folder."""
    said = "\0".join((git.rstrip("/"), commit, folder.strip("/")))
    return Path(settings.CODE_DIR) / "git" / hashlib.sha256(said.encode()).hexdigest()


def sha256_kept(code: Code) -> str | None:
    """Return the content that code means; None where that is not known on this host."""
    return sha256_of(code.upload) if code.upload else read_file(git_note(code), 64)


def root_of(code: Code | None) -> Path | None:
    """Return the root of code that Headgate keeps; None for none, and where it is not there."""
    sha256 = sha256_kept(code) if code else None
    root = kept_root(Path(settings.CODE_DIR), sha256) if sha256 else None
    return root if root is not None and root.is_dir() else None


def roots_of(spec: ApplicationSpec) -> tuple[str, ...] | None:
    """Return the roots of an application's code, in order; None where not all are there."""
    if spec.code is None:
        return spec.python_path
    root = root_of(spec.code)
    return None if root is None else (*spec.python_path, str(root))


def count_of_roots(spec: ApplicationSpec) -> int:
    """Return how many roots an application's code has."""
    return len(spec.python_path) + (spec.code is not None)


@cache
def environment() -> dict[str, str]:
    """Return the version of each package that drivers have without asking: this process's own."""
    found = ((one.metadata["Name"], one.version) for one in distributions())
    return {str(canonicalize_name(name)): version for name, version in found if name}


def is_shipped(spec: ApplicationSpec) -> bool:
    """Return whether an application's packages go to executors on other machines."""
    return not spec.master.startswith("local")


def packages_folder(spec: ApplicationSpec) -> Path | None:
    """Return the folder of an application's packages, there or not; None where it wants none."""
    return folder_of_packages(spec.packages, shipped=is_shipped(spec))


def folder_of_packages(text: str, *, shipped: bool = False) -> Path | None:
    """Return the folder of what a requirements text wishes for.

    The same wishes for the same Python and the same packages of Headgate's have the same folder;
    another one on a cluster, with the archive for its executors.
    """
    wanted = requirements.read(text)
    if not wanted.lines:
        return None
    given = "\n".join(f"{name}=={version}" for name, version in sorted(environment().items()))
    parts = [wanted.text, platform.python_version(), platform.machine(), given]
    if shipped:
        parts.append(SHIPPED)
    said = "\0".join(parts)
    return Path(settings.PACKAGES_DIR) / hashlib.sha256(said.encode()).hexdigest()


def is_to_prepare(spec: ApplicationSpec) -> bool:
    """Return whether something is still to be fetched or installed before a driver may start.

    Not where that has failed: then there is nothing to wait for.
    """
    return any(not marker(place).exists() for place in missing_places(spec))


def missing_places(spec: ApplicationSpec) -> list[Path]:
    """Return where something is still to come: the note of a commit, the folder of packages."""
    places = []
    if spec.code is not None and spec.code.git and root_of(spec.code) is None:
        places.append(git_note(spec.code))
    folder = packages_folder(spec) if spec.packages.strip() else None
    if folder is not None and not folder.is_dir():
        places.append(folder)
    return places


def marker(place: Path) -> Path:
    """Return the file that says why something could not be put into a place."""
    return place.with_name(place.name + FAILED)
