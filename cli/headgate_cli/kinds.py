"""The object kinds for `get`, `describe` and `delete`, and the columns of each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from headgate_cli.output import Columns, CommandEnded, ExitCode, Row


def at(path: str) -> Callable[[Row], Any]:
    """Return a getter for a row's field (`health.verdict` if nested); None if it is missing."""

    def step(value: Any, name: str) -> Any:
        return value.get(name) if isinstance(value, dict) else None

    return lambda row: reduce(step, path.split("."), dict(row))


def columns(text: str) -> Columns:
    """Parse columns from `title=field` or `field`, separated by spaces."""
    pairs = (column.partition("=") for column in text.split())
    return {title.upper(): at(path or title) for title, _, path in pairs}


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One kind of object."""

    name: str
    plural: str
    shown: Columns
    wide: Columns  # additional columns for `-o wide`
    address: str  # path of the list; below a query's if `of_query`
    #: Options of `get` that filter its list.
    filters: frozenset[str] = frozenset()
    key: str = "name"
    of_query: bool = False
    object_path: str = ""  # path of a single object, if it is not below the list's
    single: bool = True  # whether a single object has a path
    deletable: bool = False

    def path(self, name: str) -> tuple[str, str]:
        """Return the path of a single object."""
        if not self.single:
            way_out = f"List them: headgate get {self.plural}"
            raise CommandEnded(
                ExitCode.USAGE, f"{self.plural} can be listed, but not read one at a time.", way_out
            )
        return self.object_path or self.address, name

    def bare(self, name: str) -> str:
        """Return an object's name; accepts the output of `-o name` too."""
        return name.removeprefix(f"{self.name}/")

    def called(self, row: Row) -> str:
        """Return the kind and name, as printed by `-o name`."""
        return f"{self.name}/{row[self.key]}"


def _kind(name: str, shown: str, filters: str = "", wide: str = "", **more: Any) -> ResourceKind:
    plural = more.pop("plural", f"{name}s")
    fields = {"plural": plural, "address": plural, **more}
    fields |= {"shown": columns(shown), "wide": columns(f"{shown} {wide}")}
    return ResourceKind(name=name, filters=frozenset(filters.split()), **fields)


KINDS = (
    _kind(
        "query",
        "name application phase health=health.verdict batch=last_progress.batch_id "
        "rows/s=last_progress.processed_rows_per_second revision running=running_revision "
        "reason=phase_reason",
        "application phase health desired pool team search label",
        "desired kind team pool since=phase_since lag=lag.seconds failures labels checkpoint",
        plural="queries",
        deletable=True,
    ),
    _kind(
        "application",
        "name driver=driver.state host=driver.host script=script.phase revision "
        "running=running_revision restart=needs_restart queries team",
        "team",
        "epoch=driver.epoch pools failures labels created_at",
        deletable=True,
    ),
    _kind(
        "operation",
        "id verb query outcome detail actor created_at",
        "query application open",
        "deadline ended_at parent cancellable",
        key="id",
    ),
    _kind(
        "run",
        "id epoch revision outcome cause started_at first_commit_at ended_at last_batch",
        wide="driver=driver_epoch host spark=spark_version actor checkpoint",
        key="id",
        of_query=True,
    ),
    _kind("revision", "revision author created_at", key="revision", of_query=True, single=False),
    _kind(
        "failure", "id at category policy batch attempt error=root_cause", key="id", of_query=True
    ),
    _kind(
        "failure-group",
        "id status query count last_seen title",
        "status query application",
        key="id",
    ),
    _kind(
        "incident",
        "id severity state title query application opened_at",
        wide="kind seen_at affected assignee acknowledged_by detail",
        key="id",
    ),
    _kind("alert-rule", "name enabled position channels", deletable=True),
    _kind("alert-channel", "name kind enabled failing_since"),
    _kind("team", "name members applications"),
    _kind(
        "schedule",
        "name when due=tally.due done=tally.done failed=tally.failed skipped=tally.skipped "
        "late=tally.late last=last.due_at state=last.state next=next_time",
        "hours application",
        "starts paused=paused_at overdue running=tally.running waiting=tally.waiting "
        "latest_s=tally.latest_s ran_s=tally.ran_s rows=last.rows reason=last.reason problem",
        single=False,
    ),
    _kind(
        "deploy",
        "id state owner actor created_at ended_at reason",
        "state owner query",
        key="id",
    ),
)
_BY_NAME = {word: kind for kind in KINDS for word in (kind.name, kind.plural)}


def kind_named(name: str) -> ResourceKind:
    """Return a kind by its singular or plural name; raise `CommandEnded` if it is unknown."""
    kind = _BY_NAME.get(name.lower())
    if kind is None:
        names = ", ".join(kind.plural for kind in KINDS)
        raise CommandEnded(ExitCode.USAGE, f"Unknown kind {name}.", f"Choose one of: {names}.")
    return kind


def kind_and_names(kind: str, names: list[str]) -> tuple[ResourceKind, list[str]]:
    """Return a kind and bare names from `query delays`, `query query/delays` or `query/delays`."""
    kind, _, first = kind.partition("/")
    resource_kind = kind_named(kind)
    return resource_kind, [resource_kind.bare(name) for name in ([first] if first else []) + names]


def names_of_kinds(incomplete: str) -> list[str]:
    """Return the kinds that complete a word in a shell."""
    return [word for word in _BY_NAME if word.startswith(incomplete)]
