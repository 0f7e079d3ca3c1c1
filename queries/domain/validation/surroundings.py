"""What the rules may not look up by themselves: the host's folders, connectors and settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Root:
    """A code root as it lies on disk."""

    path: str
    exists: bool
    allowed: bool  # lies under a root that the settings allow
    modules: frozenset[str]  # names of the modules and packages directly in it


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What validation may not look up by itself."""

    code_roots: tuple[str, ...] = ()  # allowed ones, for the way out
    roots: tuple[Root, ...] = ()  # the definition's python_path
    connectors: frozenset[str] = frozenset()  # installed
    secret_env: tuple[str, ...] = ()  # names that "env:NAME" may resolve
    host_cores: int | None = None  # of this host, for local[*]
    partitions: Mapping[str, int] = field(default_factory=dict)  # by source's name, looked up
    beside: Mapping[str, int] = field(default_factory=dict)  # cores other queries hold for good
