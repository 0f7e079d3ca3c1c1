"""The installation to connect to, and its token: from the environment, or from `login`'s file."""

import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headgate_cli.ends import CommandEnded, ExitCode, refused

#: Hosts to which a token may be sent without TLS: this machine.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class Installation:
    """One installation."""

    url: str  # without a trailing slash
    token: str
    ca: str = ""  # file with the CA certificates (PEM); "": the default ones

    def __repr__(self) -> str:
        """Return only the URL."""
        return f"Place({self.url})"


class Contexts:
    """The file that `login` writes, readable only by its owner."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file or _file()
        self.current = ""
        self.places: dict[str, Installation] = {}
        self._read()

    def _read(self) -> None:
        try:
            if os.name == "posix" and self.file.stat().st_mode & 0o077:
                raise refused(
                    f"{self.file} contains tokens, and other users can read it.",
                    f"chmod 600 {self.file}",
                )
            stored: Any = json.loads(self.file.read_text())
            self.current = str(stored["current"])
            self.places = {
                name: Installation(**installation)
                for name, installation in stored["contexts"].items()
            }
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            way_out = "Remove it, and log in again: headgate login URL"
            raise refused(f"{self.file} cannot be read.", way_out) from None

    def write(self) -> None:
        """Replace the file atomically."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        stored = {
            "current": self.current,
            "contexts": {name: asdict(installation) for name, installation in self.places.items()},
        }
        handle, written = tempfile.mkstemp(dir=self.file.parent)  # with mode 0600
        with os.fdopen(handle, "w") as target:
            json.dump(stored, target, indent=2)
        os.replace(written, self.file)


def chosen(context: str, ca: str) -> Installation:
    """Return the installation to connect to.

    1. The named context.
    2. HEADGATE_URL with HEADGATE_TOKEN; one without the other is rejected, so that no token is sent
       to an installation other than its own.
    3. The context of the last login.
    """
    url, token = os.environ.get("HEADGATE_URL", ""), os.environ.get("HEADGATE_TOKEN", "")
    if not context and (url or token):
        if not (url and token):
            missing = "HEADGATE_TOKEN" if url else "HEADGATE_URL"
            raise refused(
                f"{missing} is not set.", "Set both HEADGATE_URL and HEADGATE_TOKEN, or neither."
            )
        return checked(Installation(url, token, ca))
    contexts = Contexts()
    name = context or contexts.current
    if not name:
        raise refused(
            "No installation is selected.",
            "headgate login URL, or set HEADGATE_URL and HEADGATE_TOKEN.",
        )
    installation = contexts.places.get(name)
    if installation is None:
        names = ", ".join(sorted(contexts.places)) or "none"
        raise refused(f"Context {name} does not exist.", f"Choose one of: {names}.")
    return checked(Installation(installation.url, installation.token, ca or installation.ca))


def checked(installation: Installation) -> Installation:
    """Return a place with its URL normalised; reject a URL that must not receive a token."""
    parts = urlsplit(installation.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        way_out = "Use a URL such as https://headgate.example.org."
        raise CommandEnded(
            ExitCode.USAGE, f"{installation.url} is not a valid Headgate URL.", way_out
        )
    lets_http = os.environ.get("HEADGATE_ALLOW_HTTP") == "1"
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK and not lets_http:
        raise refused(
            f"{installation.url} does not use TLS, so others could read the token in transit.",
            "Use https, or set HEADGATE_ALLOW_HTTP=1 for a trial.",
        )
    if not re.fullmatch(r"[!-~]+", installation.token):
        # The token is never quoted: a library that rejects it as a header would print it.
        raise refused("The token contains spaces, line breaks or other invalid characters.")
    if installation.ca and not Path(installation.ca).is_file():
        raise refused(f"The certificate file {installation.ca} does not exist.")
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    return Installation(
        f"{parts.scheme}://{parts.netloc}{path}", installation.token, installation.ca
    )


def checked_name(name: str) -> str:
    """Return a context's name; reject a name that would need quoting in a shell."""
    if not _NAME.fullmatch(name):
        way_out = "Use letters, digits and . _ -, starting with a letter or a digit."
        raise CommandEnded(ExitCode.USAGE, f"{name} is not a valid context name.", way_out)
    return name


def _file() -> Path:
    if named := os.environ.get("HEADGATE_CONFIG"):
        return Path(named)
    from platformdirs import user_config_path

    return user_config_path("headgate") / "contexts.json"
