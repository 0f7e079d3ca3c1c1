"""Which installation is spoken to, with which token: the environment, or the file of `login`."""

import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headgate_cli.ends import Code, Ended, refused

#: Hosts on which a token may travel without TLS: this machine.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Place:
    """One installation."""

    url: str  # without a slash at its end
    token: str
    ca: str = ""  # file of the certificates (PEM) that its own is checked with; "": the usual ones

    def __repr__(self) -> str:
        """Return the address alone."""
        return f"Place({self.url})"


class Contexts:
    """The file that `login` writes, readable by its owner alone."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file or _file()
        self.current = ""
        self.places: dict[str, Place] = {}
        self._read()

    def _read(self) -> None:
        try:
            if os.name == "posix" and self.file.stat().st_mode & 0o077:
                raise refused(
                    f"{self.file} holds tokens, and others can read it.", f"chmod 600 {self.file}"
                )
            held: Any = json.loads(self.file.read_text())
            self.current = str(held["current"])
            self.places = {name: Place(**place) for name, place in held["contexts"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            way_out = "Remove it, and log in again: headgate login URL"
            raise refused(f"{self.file} cannot be read.", way_out) from None

    def write(self) -> None:
        """Replace the file, whole or not at all."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = {
            "current": self.current,
            "contexts": {name: asdict(place) for name, place in self.places.items()},
        }
        handle, written = tempfile.mkstemp(dir=self.file.parent)  # with mode 0600
        with os.fdopen(handle, "w") as target:
            json.dump(held, target, indent=2)
        os.replace(written, self.file)


def chosen(context: str, ca: str) -> Place:
    """Return the installation to speak to.

    1. The context that is named.
    2. HEADGATE_URL with HEADGATE_TOKEN; one without the other is refused, so that no token
       goes to another installation than its own.
    3. The context of the last login.
    """
    url, token = os.environ.get("HEADGATE_URL", ""), os.environ.get("HEADGATE_TOKEN", "")
    if not context and (url or token):
        if not (url and token):
            missing = "HEADGATE_TOKEN" if url else "HEADGATE_URL"
            raise refused(f"{missing} is not set.", "Set HEADGATE_URL and HEADGATE_TOKEN, or none.")
        return checked(Place(url, token, ca))
    contexts = Contexts()
    name = context or contexts.current
    if not name:
        raise refused(
            "No installation is chosen.",
            "headgate login URL, or set HEADGATE_URL and HEADGATE_TOKEN.",
        )
    place = contexts.places.get(name)
    if place is None:
        known = ", ".join(sorted(contexts.places)) or "none"
        raise refused(f"There is no context {name}.", f"Choose one of: {known}.")
    return checked(Place(place.url, place.token, ca or place.ca))


def checked(place: Place) -> Place:
    """Return a place with its address in one form; refuse one that a token must not go to."""
    parts = urlsplit(place.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        way_out = "Write it like https://headgate.example.org."
        raise Ended(Code.USAGE, f"{place.url} is not an address of Headgate.", way_out)
    lets_http = os.environ.get("HEADGATE_ALLOW_HTTP") == "1"
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and not lets_http:
        raise refused(
            f"{place.url} has no TLS: others could read the token on its way.",
            "Use https, or set HEADGATE_ALLOW_HTTP=1 for a trial.",
        )
    if not re.fullmatch(r"[!-~]+", place.token):
        # Never quoted: a library that refuses it as a header would print it.
        raise refused("The token holds spaces, lines or other characters that no token has.")
    if place.ca and not Path(place.ca).is_file():
        raise refused(f"{place.ca}, the file of certificates, is not there.")
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    return Place(f"{parts.scheme}://{parts.netloc}{path}", place.token, place.ca)


def checked_name(name: str) -> str:
    """Return a context's name; refuse one that no shell takes as it is."""
    if not _NAME.fullmatch(name):
        way_out = "Use letters, digits and . _ -, starting with a letter or a digit."
        raise Ended(Code.USAGE, f"{name} is not a valid name of a context.", way_out)
    return name


def _file() -> Path:
    if named := os.environ.get("HEADGATE_CONFIG"):
        return Path(named)
    from platformdirs import user_config_path

    return user_config_path("headgate") / "contexts.json"
