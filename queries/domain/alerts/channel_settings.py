"""The settings that users enter for a kind of channel: declared with it, checked by `forms`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from queries.domain.errors import Problem


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a kind of channel, and how the page asks for it."""

    name: str
    label: str
    needed: bool = True
    secret: bool = False  # written as a reference: file:NAME or env:NAME
    lines: bool = False  # a list, entered line by line


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """The settings of a kind of channel, in the order in which they are shown."""

    settings: tuple[Setting, ...]
    #: Returns what else is wrong with the values; None if there is nothing else to check.
    check: Callable[[Mapping[str, Any]], list[Problem]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all settings."""
        return tuple(setting.name for setting in self.settings)

    @property
    def needed(self) -> tuple[str, ...]:
        """Return the names of the settings that must have a value."""
        return tuple(setting.name for setting in self.settings if setting.needed)

    @property
    def secret(self) -> tuple[str, ...]:
        """Return the names of the settings that hold secrets."""
        return tuple(setting.name for setting in self.settings if setting.secret)
