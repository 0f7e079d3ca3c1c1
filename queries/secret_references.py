"""Resolve secret references on the driver's host, and mask secrets in strings.

A definition contains "env:NAME" or "file:NAME"; only a process that needs the value ever has it (a
driver, and the worker that queries a broker for lag), and every error message of that process
passes through `mask` first.
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from headgate_ground.masking import TABLE, Mask, is_reference, references, secrets_in

#: Minimum length of a secret, in characters: masking by value must not damage other texts.
SHORTEST = 8


class ReferenceMissing(Exception):
    """A secret referenced by a definition cannot be read; the message says which one and why."""


class SecretTooShort(ReferenceMissing):
    """A secret is too short to be masked; the message is one sentence, which lists show in full."""

    def __init__(self, reference: str, length: int) -> None:
        self.wrong = (
            f"has {length} characters, but a secret needs at least {SHORTEST}, or it could not be "
            "masked in texts"
        )
        super().__init__(f"{reference} {self.wrong}: store a longer one, then start again.")


class References:
    """Resolves one driver's secrets, and remembers their values so that strings can be masked."""

    def __init__(self, *, env_allowlist: tuple[str, ...], secrets_dir: str) -> None:
        self._allowlist = frozenset(env_allowlist)
        self._secrets_dir = secrets_dir
        self._values: set[str] = set()
        self._mask = Mask()
        self._noting = threading.Lock()
        self._removed: dict[str, str] = {}  # variables removed from the environment
        # Every process that runs users' code has these in its environment, referenced or not.
        self._note(os.environ[name] for name in self._allowlist if name in os.environ)

    def take_from_environment(self) -> None:
        """Move the allowed variables to this object, so that no child process inherits them.

        Spark's SQL and Hadoop's configuration read the JVM's environment through ${env:NAME}.
        """
        for name in self._allowlist & os.environ.keys():
            self._removed[name] = os.environ.pop(name)

    def resolve(self, value: str) -> str:
        """Return the value of a reference; return any other string unchanged."""
        if not is_reference(value):
            return value
        kind, _, name = value.partition(":")
        secret = self._from_env(name) if kind == "env" else self._from_file(name)
        if len(secret) < SHORTEST:
            raise SecretTooShort(value, len(secret))
        self._note([secret])
        return secret

    def resolve_all(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the mapping with every value resolved; an error contains the key."""
        resolved = {}
        for name, value in values.items():
            try:
                resolved[name] = self.resolve(value)
            except ReferenceMissing as error:
                raise ReferenceMissing(f"{name}: {error}") from error
        return resolved

    def resolve_in(self, value: Any) -> Any:
        """Return a JSON value with all its references resolved."""
        if isinstance(value, Mapping):
            return {name: self.resolve_in(element) for name, element in value.items()}
        if isinstance(value, list | tuple):
            return [self.resolve_in(element) for element in value]
        return self.resolve(value) if isinstance(value, str) else value

    def named_by(self, values: Mapping[str, str]) -> list[str]:
        """Return the keys whose values are references."""
        return [name for name, value in values.items() if is_reference(value)]

    def learn(self, *values: Any) -> None:
        """Remember every secret that JSON values reference or contain, skipping unreadable ones."""
        for value in values:
            self._note(secrets_in(value))
            for name in references(value):
                with contextlib.suppress(ReferenceMissing):
                    self.resolve(name)

    def mask(self, text: str) -> str:
        """Return the string with known secrets, and anything that looks like a secret, masked."""
        return self._mask(text)

    def mask_resolved(self, text: str) -> str:
        """Return the string with only known secrets masked: all of it was searched before."""
        return self._mask.mask_known_secrets(text)

    def digest(self) -> str:
        """Return a digest of what `mask` masks: the known secrets, and the table's version."""
        return sha256("\0".join((TABLE, *self._mask.forms)).encode(errors="replace")).hexdigest()

    def mask_within(self, value: Any) -> Any:
        """Return a driver's JSON with its strings masked."""
        return self._mask.within(value)

    def _note(self, values: Iterable[str]) -> None:
        """Remember secrets; runs resolve them in their own threads while others mask strings."""
        with self._noting:
            if fresh := set(values) - self._values:
                self._values |= fresh
                self._mask = Mask.of(self._values)

    def _from_env(self, name: str) -> str:
        if name not in self._allowlist:
            raise ReferenceMissing(
                f"env:{name} was not passed to this process. Add it to HEADGATE_SECRET_ENV and "
                "restart the application: drivers get their variables when they start."
            )
        value = self._removed.get(name, os.environ.get(name))
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
                f"file:{name} cannot be read: {type(error).__name__}. Put the secret into a file "
                "with that name in the secrets folder (HEADGATE_SECRETS), then restart anything "
                "that uses it."
            ) from error
