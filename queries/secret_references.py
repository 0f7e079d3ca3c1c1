"""Secrets by reference: resolved on the driver's host, and never told again.

A definition says "env:NAME" or "file:NAME"; only the process that needs the value ever holds
it (a driver, and the worker that asks a broker how far its source is behind), and everything
that process says of an error passes `mask` first.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from queries.domain.masking import mask_text

_REFERENCE = re.compile(r"(env|file):([A-Za-z0-9_.\-]+)")


class ReferenceMissing(Exception):
    """A secret that a definition names cannot be had; the message says which and why."""


class References:
    """Resolve secrets of one driver, and remember them so that texts can be masked."""

    def __init__(self, *, env_allowlist: tuple[str, ...], secrets_dir: str) -> None:
        self._allowlist = frozenset(env_allowlist)
        self._secrets_dir = secrets_dir
        self._values: set[str] = set()

    def resolve(self, value: str) -> str:
        """Return what a reference stands for, any other text as it is."""
        found = _REFERENCE.fullmatch(value)
        if found is None:
            return value
        secret = self._from_env(found[2]) if found[1] == "env" else self._from_file(found[2])
        self._values.add(secret)
        return secret

    def resolve_all(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the mapping with every value resolved; the error names the key."""
        resolved = {}
        for name, value in values.items():
            try:
                resolved[name] = self.resolve(value)
            except ReferenceMissing as error:
                raise ReferenceMissing(f"{name}: {error}") from error
        return resolved

    def resolve_in(self, value: Any) -> Any:
        """Return a JSON value with every reference in it resolved."""
        if isinstance(value, Mapping):
            return {name: self.resolve_in(held) for name, held in value.items()}
        if isinstance(value, list | tuple):
            return [self.resolve_in(held) for held in value]
        return self.resolve(value) if isinstance(value, str) else value

    def named_by(self, values: Mapping[str, str]) -> list[str]:
        """Return the keys whose values are references."""
        return [name for name, value in values.items() if _REFERENCE.fullmatch(value)]

    def mask(self, text: str) -> str:
        """Return the text without any secret that was resolved."""
        return mask_text(text, secrets=self._values)

    def _from_env(self, name: str) -> str:
        if name not in self._allowlist:
            raise ReferenceMissing(
                f"env:{name} is not a variable that drivers may read. "
                "Add it to HEADGATE_SECRET_ENV."
            )
        value = os.environ.get(name)
        if value is None:
            raise ReferenceMissing(
                f"env:{name} is not set on this host. Set it where the worker is started."
            )
        return value

    def _from_file(self, name: str) -> str:
        path = Path(self._secrets_dir) / name
        if not self._secrets_dir or name in (".", ".."):
            raise ReferenceMissing(f"file:{name} cannot be read: no secrets folder is configured.")
        try:
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ReferenceMissing(
                f"file:{name} cannot be read: {type(error).__name__}. "
                f"Put the secret into a file of that name in {self._secrets_dir}."
            ) from error
