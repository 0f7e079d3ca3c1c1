"""Read settings from the environment; a wrong value stops the start with a clear error.

The error names the variable, shows the value (unless it is secret) and says what to do. Each
variable read is recorded in `DECLARED`, which a test compares with `docs/settings.md`.
"""

import ipaddress
import os
import re
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

from queries.domain.access.single_sign_on import LONGEST_ISSUER, may_be_asked
from queries.domain.definitions.labels import read_labels
from queries.domain.errors import Invalid
from queries.domain.masking import mask_text

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


#: The variables that Headgate reads -> the default as one would write it, "" where there is none.
DECLARED: dict[str, str] = {}


def wrong(name: str, value: str, way_out: str) -> ImproperlyConfigured:
    """Return the error for a variable whose value cannot be used."""
    return ImproperlyConfigured(f"{name}={mask_text(value)!r} cannot be used. {way_out}")


def text(name: str, default: str, *, shown: str | None = None) -> str:
    """Return a text; an empty variable counts as unset. `shown` is the default as documented."""
    DECLARED[name] = default if shown is None else shown
    return os.environ.get(name, "").strip() or default


def secret(name: str, default: str = "", *, shown: str | None = None) -> str:
    """Return a text that is a secret: of the variable, or of the file that NAME_FILE names.

    A variable of a container is shown by its engine to whoever may ask it; a file is not.
    """
    text(name, default, shown=shown)
    text(f"{name}_FILE", "")
    return given(name) or default


def given(name: str) -> str:
    """Return what NAME or the file of NAME_FILE holds, "" where neither is set."""
    plain, file = (os.environ.get(one, "").strip() for one in (name, f"{name}_FILE"))
    if not file:
        return plain
    if plain:
        raise wrong(f"{name}_FILE", file, f"{name} is set too; keep one of them.")
    try:
        held = Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        raise wrong(f"{name}_FILE", file, f"It cannot be read: {error}.") from error
    if not held:
        raise wrong(f"{name}_FILE", file, "The file is empty.")
    return held


def whole(name: str, default: int, *, low: int, high: int, shown: str | None = None) -> int:
    """Return a whole number from `low` to `high`, both included."""
    raw = text(name, str(default), shown=shown)
    try:
        value = int(raw)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise wrong(name, raw, f"Give a whole number from {low} to {high}, or unset it.")
    return value


def mode(name: str, default: str) -> int:
    """Return a umask, written in octal as shells do: "022"."""
    raw = text(name, default)
    if not re.fullmatch(r"0?[0-7]{3}", raw):
        raise wrong(name, raw, "Write three octal digits, such as 022 or 027.")
    return int(raw, 8)


def flag(name: str, default: bool) -> bool:
    """Return a switch: 1, true, yes, on; or 0, false, no, off."""
    DECLARED[name] = "1" if default else "0"
    raw = os.environ.get(name, DECLARED[name])
    word = raw.strip().lower()
    if word not in _TRUE | _FALSE:
        raise wrong(name, raw, "Give 1 or 0.")
    return word in _TRUE


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words."""
    value = text(name, default)
    if value not in allowed:
        raise wrong(name, value, f"Give one of {', '.join(allowed)}.")
    return value


def names(name: str, default: tuple[str, ...], *, shown: str | None = None) -> list[str]:
    """Return a list written with commas between its items."""
    raw = text(name, ",".join(default), shown=shown)
    return [part.strip() for part in raw.split(",") if part.strip()]


def networks(name: str) -> list[str]:
    """Return networks written with commas between them: "10.20.0.0/16"."""
    given = names(name, ())
    for one in given:
        try:
            ipaddress.ip_network(one, strict=False)
        except ValueError as error:
            raise wrong(name, one, "Give networks such as 10.20.0.0/16, with commas.") from error
    return given


def labels(name: str) -> dict[str, str]:
    """Return labels written as `team=data env=prod`."""
    raw = text(name, "")
    try:
        return read_labels(raw)
    except Invalid as error:
        raise wrong(name, raw, f"{error} Write labels such as team=data.") from error


def issuer(name: str, *, http_allowed: bool) -> str:
    """Return the issuer of an identity provider, "" for none: an https address.

    Plain http is for this machine, or where it is allowed.
    """
    value = text(name, "")
    plain = "?" not in value and "#" not in value and len(value) <= LONGEST_ISSUER
    if value and not (plain and may_be_asked(value, http_allowed=http_allowed)):
        raise wrong(name, value, "Give the issuer as the provider writes it: https://HOST/PATH.")
    return value


def database(name: str, default: str, *, shown: str) -> dict[str, Any]:
    """Return Django's form of a database address: sqlite:///PATH or postgres://…"""
    raw = secret(name, default, shown=shown)
    way_out = "Give sqlite:////absolute/path or postgres://USER:PASSWORD@HOST:PORT/NAME."
    if not raw.startswith(("sqlite:", "postgres:", "postgresql:")):
        raise wrong(name, raw, way_out)
    try:
        config: dict[str, Any] = environ.Env.db_url_config(raw)
    except (ValueError, ImproperlyConfigured) as error:
        raise wrong(name, raw, way_out) from error
    if not config.get("NAME"):
        raise wrong(name, raw, way_out)
    return config


def redis_url(name: str, default: str, *, shown: str) -> str:
    """Return the address of a Redis: redis://, rediss:// or unix://."""
    raw = secret(name, default, shown=shown)
    if not re.fullmatch(r"(rediss?://[^\s]*[^\s:/]+.*|unix://.+)", raw):
        raise wrong(name, raw, "Give redis://HOST:PORT/DB, rediss://… or unix:///path?db=0.")
    return raw
