"""Find an application's code and packages on this host, and its script's pending question.

Both are stored in a place named after their content or their requirements, so that a rollback to a
revision finds the code and packages that the revision ran with. `queries.services.code.preparing`
puts them there.
"""

import hashlib
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path

from django.conf import settings
from django.db.models import F, OuterRef, QuerySet, Subquery
from packaging.utils import canonicalize_name

from headgate_ground.files import read_file
from headgate_server import places
from queries.code_roots import files_of, stored_root
from queries.domain.code import references
from queries.domain.code.archives import sha256_of
from queries.domain.code.shipping import SHIPPED
from queries.domain.definitions.spec import ApplicationSpec, Code
from queries.domain.scripts import called
from queries.domain.sparks import OURS, Spark
from queries.models.applications import Script
from queries.models.definitions import Checkpoint, Query
from queries.models.grants import CodeHost

#: Suffix of a file with the reason why something could not be prepared.
FAILED = ".failed"
#: Most file names of an upload that are shown.
MOST_PATHS = 1_000


def code_hosts() -> frozenset[str]:
    """Return the hosts from which definitions can take code."""
    return frozenset(CodeHost.objects.filter(taken_at=None).values_list("host", flat=True))


def git_note(code: Code) -> Path:
    """Return the file that will record the content of a commit's folder when that is fetched."""
    return note_of(code.git, code.commit, code.folder)


def note_of(git: str, commit: str, folder: str) -> Path:
    """Return the same file, given a repository, a commit and a folder."""
    key = "\0".join((git.rstrip("/"), commit, folder.strip("/")))
    return Path(settings.CODE_DIR) / "git" / hashlib.sha256(key.encode()).hexdigest()


def paths_of(sha256: str) -> list[str]:
    """Return an upload's first `MOST_PATHS` file names; none if it is not on this host."""
    root = str(stored_root(Path(settings.CODE_DIR), sha256))
    try:
        return [name for _, _, name in islice(files_of((root,)), MOST_PATHS)]
    except NotADirectoryError:
        return []


def stored_sha256(code: Code) -> str | None:
    """Return the content hash of code; None if it is unknown on this host."""
    return sha256_of(code.upload) if code.upload else read_file(git_note(code), 64)


def root_of(code: Code | None) -> Path | None:
    """Return the root of code that Headgate stores; None if there is none or it is missing."""
    sha256 = stored_sha256(code) if code else None
    root = stored_root(Path(settings.CODE_DIR), sha256) if sha256 else None
    return root if root is not None and root.is_dir() else None


def roots_of(spec: ApplicationSpec) -> tuple[str, ...] | None:
    """Return the roots of an application's code, in order; None if some are missing."""
    if spec.code is None:
        return spec.python_path
    root = root_of(spec.code)
    return None if root is None else (*spec.python_path, str(root))


def count_of_roots(spec: ApplicationSpec) -> int:
    """Return how many roots an application's code has."""
    return len(spec.python_path) + (spec.code is not None)


@cache
def environment(spark: Spark = OURS) -> dict[str, str]:
    """Return the version of each package that every driver on a Spark version has.

    They are those of this process, except for what the version's folder replaces.
    """
    versions = (
        (distribution.metadata["Name"], distribution.version) for distribution in distributions()
    )
    ours = {str(canonicalize_name(name)): version for name, version in versions if name}
    return ours | replaced_by(spark)


@cache
def replaced_by(spark: Spark) -> dict[str, str]:
    """Return the version of each package in a Spark version's folder; none for ours."""
    pins = "" if spark == OURS else (places.DATA / f"connectors/sparks/{spark}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)", pins, re.MULTILINE))


def is_shipped(spec: ApplicationSpec) -> bool:
    """Return whether an application's packages go to executors on other machines."""
    return not spec.master.startswith("local")


def packages_folder(spec: ApplicationSpec) -> Path | None:
    """Return the folder of an application's packages, which may be missing; None if it has none."""
    return folder_of_packages(spec.packages, spec.spark, shipped=is_shipped(spec))


def folder_of_packages(text: str, spark: Spark = OURS, *, shipped: bool = False) -> Path | None:
    """Return the folder for these requirements.

    Identical requirements share a folder if Python and the packages that drivers have are the same.
    A cluster has a separate folder, with the archive for its executors.
    """
    wanted = references.read(text)
    if not wanted.lines:
        return None
    constraints = "\n".join(
        f"{name}=={version}" for name, version in sorted(environment(spark).items())
    )
    parts = [wanted.text, platform.python_version(), platform.machine(), constraints]
    if shipped:
        parts.append(SHIPPED)
    key = "\0".join(parts)
    return Path(settings.PACKAGES_DIR) / hashlib.sha256(key.encode()).hexdigest()


def is_to_prepare(spec: ApplicationSpec) -> bool:
    """Return whether something must still be fetched or installed before a driver can start.

    Returns False if the preparation has failed, because there is then nothing to wait for.
    """
    return any(not marker(path).exists() for path in missing_places(spec))


def missing_places(spec: ApplicationSpec) -> list[Path]:
    """Return the places that are still missing: a commit's note, the package folder."""
    places = []
    if spec.code is not None and spec.code.git and root_of(spec.code) is None:
        places.append(git_note(spec.code))
    folder = packages_folder(spec) if spec.packages.strip() else None
    if folder is not None and not folder.is_dir():
        places.append(folder)
    return places


def marker(path: Path) -> Path:
    """Return the file with the reason why a place could not be prepared."""
    return path.with_name(path.name + FAILED)


@dataclass(frozen=True, slots=True)
class Asking:
    """A question, in the form that pages and the API use."""

    identity: str
    query: str  # the new query's name, for messages
    checkpoint: str  # named by the script, "" if none
    missing: list[str]  # names of queries that the script has not started


def candidate_queries(script: Script) -> QuerySet[Query]:
    """Return the existing queries that the new one may correspond to, by name."""
    living = Query.objects.filter(application=script.application_id, archived_at=None)
    return living.filter(pk__in=script.question.get("missing", ())).order_by("name")


def asking(script: Script | None) -> Asking | None:
    """Return the question of the script's driver; None if there is none."""
    if script is None or not script.question:
        return None
    question = script.question
    return Asking(
        identity=question["identity"],
        query=called(question["name"], question["asked"]),
        checkpoint=question["asked"],
        missing=[query.name for query in candidate_queries(script)],
    )


@dataclass(frozen=True, slots=True)
class MovedCheckpoint:
    """A query that a script has started on a different checkpoint than before."""

    query: int  # primary key
    name: str
    application: int  # primary key
    before: str  # locations
    now: str

    @property
    def text(self) -> str:
        """Return an explanation of what happened and what it means."""
        return (
            f"The checkpoint of {self.name} was {self.before}, and is now {self.now}. Its "
            "state starts empty, and rows that were read before are read again or skipped. To "
            "continue from the old checkpoint, use the same checkpointLocation in the script at "
            "each start."
        )


def moved_checkpoints(*, since: datetime) -> Iterator[MovedCheckpoint]:
    """Yield queries whose checkpoint has since been moved by their script itself.

    Moves by a rewind or a reset are reported elsewhere. Temporary checkpoints do not count: they
    are emptied at each start, wherever they are.
    """
    left = Checkpoint.objects.filter(query=OuterRef("query"), retired_at=OuterRef("created_at"))
    rows = Checkpoint.objects.filter(
        retired_at=None, built_from=None, created_at__gte=since, query__temporary=""
    ).exclude(query__identity="")
    rows = rows.annotate(before=Subquery(left.values("location")[:1])).exclude(before=None)
    moved = rows.order_by("query__name").values_list(
        "query", "query__name", "query__application", "before", "location"
    )
    for row in moved.exclude(before=F("location")):
        yield MovedCheckpoint(*row)
