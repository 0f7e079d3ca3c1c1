"""The kinds of things that `get`, `describe` and `delete` know, and what is shown of each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from headgate_cli.ends import Code, Ended
from headgate_cli.output import Columns, Row


def at(path: str) -> Callable[[Row], Any]:
    """Return what reads a field of a row, `health.verdict` of one inside; None where it is not."""

    def step(held: Any, name: str) -> Any:
        return held.get(name) if isinstance(held, dict) else None

    return lambda row: reduce(step, path.split("."), dict(row))


def columns(text: str) -> Columns:
    """Return columns from `title=field` or `field`, with spaces between."""
    pairs = (one.partition("=") for one in text.split())
    return {title.upper(): at(path or title) for title, _, path in pairs}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing."""

    name: str
    plural: str
    shown: Columns
    address: str  # of the list; below a query's where `of_query`
    #: Options of `get` that its list filters by.
    filters: frozenset[str] = frozenset()
    key: str = "name"
    of_query: bool = False
    one: str = ""  # address of one of them, where it is not below the list's
    single: bool = True  # one of them has an address
    deletable: bool = False

    def path(self, name: str) -> tuple[str, str]:
        """Return the address of one of them."""
        if not self.single:
            way_out = f"List them: headgate get {self.plural}"
            raise Ended(Code.USAGE, f"One {self.name} cannot be read by itself.", way_out)
        return self.one or self.address, name

    def bare(self, name: str) -> str:
        """Return the name of one of them, also of what `-o name` prints."""
        return name.removeprefix(f"{self.name}/")

    def called(self, row: Row) -> str:
        """Return kind and name, as `-o name` prints them."""
        return f"{self.name}/{row[self.key]}"


def _kind(name: str, shown: str, filters: str = "", **more: Any) -> Kind:
    plural = more.pop("plural", f"{name}s")
    held = {"plural": plural, "address": plural, **more}
    return Kind(name=name, shown=columns(shown), filters=frozenset(filters.split()), **held)


KINDS = (
    _kind(
        "query",
        "name application phase health=health.verdict batch=last_progress.batch_id "
        "rows/s=last_progress.processed_rows_per_second revision running=running_revision "
        "reason=phase_reason",
        "application phase health desired pool team search label",
        plural="queries",
        deletable=True,
    ),
    _kind(
        "application",
        "name driver=driver.state host=driver.host script=script.phase revision "
        "running=running_revision restart=needs_restart queries team",
        "team",
        deletable=True,
    ),
    _kind(
        "operation",
        "id verb query outcome detail actor created_at",
        "query application open",
        key="id",
    ),
    _kind(
        "run",
        "id epoch revision outcome cause started_at first_commit_at ended_at last_batch",
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
    _kind("incident", "id severity state title query application opened_at", key="id"),
    _kind("alert-rule", "name enabled position channels", deletable=True),
    _kind("alert-channel", "name kind enabled failing_since"),
    _kind("team", "name members applications"),
    _kind(
        "deploy",
        "id state owner actor created_at ended_at reason",
        "state owner query",
        key="id",
    ),
)
_BY_NAME = {word: kind for kind in KINDS for word in (kind.name, kind.plural)}


def kind_named(name: str) -> Kind:
    """Return a kind by its name in singular or plural; raise `Ended` for an unknown one."""
    kind = _BY_NAME.get(name)
    if kind is None:
        known = ", ".join(kind.plural for kind in KINDS)
        raise Ended(Code.USAGE, f"There is no kind {name}.", f"Choose one of: {known}.")
    return kind


def names_of_kinds(incomplete: str) -> list[str]:
    """Return the kinds that a shell may complete a word to."""
    return [word for word in _BY_NAME if word.startswith(incomplete)]
