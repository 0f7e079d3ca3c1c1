"""Read settings from the environment; on an invalid value, abort the start with a clear error.

The error names the variable, shows the value (unless it is secret) and says what to do. Each
variable read is recorded in `DECLARED`, which a test compares with `docs/settings.md`.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from headgate_ground.labels import LABEL, MOST_LABELS
from headgate_ground.masking import mask_text
from headgate_ground.providers import LONGEST_ISSUER, is_allowed_address

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})
#: A URI that names a store: no local file, no scheme that definitions cannot use, no wildcard.
_STORE = re.compile(r"(?!(file|s3n|dbfs):)[a-z][a-z0-9+.-]*://[^/\s?*\[\]{}]+(/[^\s?*\[\]{}]*)?")


#: The variables that Headgate reads -> the default as a user would write it; "" if there is none.
DECLARED: dict[str, str] = {}


def wrong(name: str, value: str, way_out: str) -> ImproperlyConfigured:
    """Return the error for a variable's invalid value."""
    return ImproperlyConfigured(f"{name}={mask_text(value)!r} cannot be used. {way_out}")


def refuse_former_names(current: Mapping[str, str]) -> None:
    """Raise an error if a variable is set under a former name; `current` is by former name.

    Ignored, a setting for isolation would leave drivers without it. An empty variable counts as
    unset.
    """
    for former, name in current.items():
        if value := os.environ.get(former, "").strip():
            raise wrong(former, value, f"It has been renamed: set {name} and unset {former}.")


def text(name: str, default: str, *, shown: str | None = None) -> str:
    """Return a string; an empty variable counts as unset. `shown` is the default to document."""
    DECLARED[name] = default if shown is None else shown
    return os.environ.get(name, "").strip() or default


def secret(name: str, default: str = "", *, shown: str | None = None) -> str:
    """Return a secret from the variable, or from the file whose path is in NAME_FILE.

    A container engine shows a container's variables, but not its files, to anyone who can query the
    engine.
    """
    text(name, default, shown=shown)
    text(f"{name}_FILE", "")
    return value_of(name) or default


def value_of(name: str) -> str:
    """Return the value of NAME or the content of the file in NAME_FILE; "" if neither is set."""
    plain, file = (os.environ.get(variable, "").strip() for variable in (name, f"{name}_FILE"))
    if not file:
        return plain
    if plain:
        raise wrong(f"{name}_FILE", file, f"{name} is also set. Set only one of them.")
    try:
        content = Path(file).read_text().strip()
    except (OSError, ValueError) as error:
        raise wrong(f"{name}_FILE", file, f"It cannot be read: {error}.") from error
    if not content:
        raise wrong(f"{name}_FILE", file, "The file is empty.")
    return content


def whole(name: str, default: int, *, low: int, high: int, shown: str | None = None) -> int:
    """Return an integer from `low` to `high`, both inclusive."""
    raw = text(name, str(default), shown=shown)
    try:
        value = int(raw)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise wrong(name, raw, f"Use a whole number from {low} to {high}, or unset it.")
    return value


def mode(name: str, default: str) -> int:
    """Return a umask, written in octal as in a shell: "022"."""
    raw = text(name, default)
    if not re.fullmatch(r"0?[0-7]{3}", raw):
        raise wrong(name, raw, "Use three octal digits, such as 022 or 027.")
    return int(raw, 8)


def flag(name: str, default: bool) -> bool:
    """Return a switch: 1, true, yes, on; or 0, false, no, off."""
    DECLARED[name] = "1" if default else "0"
    raw = os.environ.get(name, DECLARED[name])
    word = raw.strip().lower()
    if word not in _TRUE | _FALSE:
        raise wrong(name, raw, "Use 1 or 0.")
    return word in _TRUE


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words."""
    value = text(name, default)
    if value not in allowed:
        raise wrong(name, value, f"Use one of {', '.join(allowed)}.")
    return value


def names(name: str, default: tuple[str, ...], *, shown: str | None = None) -> list[str]:
    """Return a comma-separated list."""
    raw = text(name, ",".join(default), shown=shown)
    return [part.strip() for part in raw.split(",") if part.strip()]


def networks(name: str) -> list[str]:
    """Return comma-separated networks: "10.20.0.0/16"."""
    values = names(name, ())
    for network in values:
        try:
            ipaddress.ip_network(network, strict=False)
        except ValueError as error:
            raise wrong(
                name, network, "Use networks such as 10.20.0.0/16, separated by commas."
            ) from error
    return values


def labels(name: str) -> dict[str, str]:
    """Parse labels such as `team=data env=prod`."""
    raw = text(name, "")
    parts = [label.partition("=") for label in raw.replace(",", " ").split()]
    pairs = {key: value for key, _, value in parts}
    fit = all(LABEL.fullmatch(key) and LABEL.fullmatch(value) for key, value in pairs.items())
    if not fit or len(pairs) != len(parts) or len(pairs) > MOST_LABELS:
        way_out = f"Use at most {MOST_LABELS} labels such as team=data, each name only once."
        raise wrong(name, raw, way_out)
    return pairs


def issuer(name: str, *, http_allowed: bool) -> str:
    """Return the identity provider's issuer, which is an https URL; "" if there is none.

    Plain http is accepted only for this machine, or if a setting allows it.
    """
    value = text(name, "")
    plain = "?" not in value and "#" not in value and len(value) <= LONGEST_ISSUER
    if value and not (plain and is_allowed_address(value, http_allowed=http_allowed)):
        raise wrong(
            name, value, "Use the issuer exactly as the provider specifies it: https://HOST/PATH."
        )
    return value


def web_address(name: str) -> str:
    """Return the http or https URL of a server without a trailing slash; "" if there is none."""
    value = text(name, "").rstrip("/")
    try:
        parts = urlsplit(value)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets or a port that do not fit
        fits = False
    if value and not (fits and parts.username is None and not parts.path + parts.query):
        raise wrong(name, value, "Use the server's address: https://HOST:PORT.")
    return value


def host_in(url: str) -> str:
    """Return the host in a URL as Django's ALLOWED_HOSTS expects it: IPv6 in brackets."""
    host = urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host


def store(name: str) -> str:
    """Return a folder on storage that is not local, as a URI without a trailing slash.

    "" if there is none.
    """
    value = text(name, "").rstrip("/")
    if value and (not _STORE.fullmatch(value) or ".." in value):
        raise wrong(name, value, "Use a folder on S3 or HDFS: s3a://BUCKET/FOLDER.")
    return value


def database(name: str, default: str, *, shown: str) -> dict[str, Any]:
    """Return Django's settings for a database URL: sqlite:///PATH or postgres://…"""
    raw = secret(name, default, shown=shown)
    way_out = "Use sqlite:////absolute/path or postgres://USER:PASSWORD@HOST:PORT/NAME."
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
    """Return the URL of a Redis: redis://, rediss:// or unix://."""
    raw = secret(name, default, shown=shown)
    if not re.fullmatch(r"(rediss?://[^\s]*[^\s:/]+.*|unix://.+)", raw):
        raise wrong(name, raw, "Use redis://HOST:PORT/DB, rediss://… or unix:///path?db=0.")
    return raw
