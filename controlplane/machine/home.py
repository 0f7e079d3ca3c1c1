"""Where one machine's installation keeps what it chose: small files in HEADGATE_HOME.

Settings read them too, so that `manage.py` typed by a person meets the same Redis and the
same secret key as the processes that `make run` started. Imports no Django: settings use it.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path

from queries.files import replace_file


@dataclass(frozen=True, slots=True)
class Home:
    """The data folder of an installation, by the names of what lies in it."""

    root: Path

    @property
    def secret_key(self) -> Path:
        """The key that signs sessions, 0600."""
        return self.root / "secret_key"

    @property
    def redis_url(self) -> Path:
        """The address of the embedded Redis with its password, 0600."""
        return self.root / "valkey" / "url"

    @property
    def valkey(self) -> Path:
        """Configuration and append-only files of the embedded Redis."""
        return self.root / "valkey"

    @property
    def java(self) -> Path:
        """A JAVA_HOME of our own around the JRE in a wheel, where no other Java is to be had."""
        return self.root / "java"

    @property
    def kafka(self) -> Path:
        """The trial broker: its jars, configuration, records and log; see `kafka.py`."""
        return self.root / "kafka"

    @property
    def logs(self) -> Path:
        """One rotated log a program."""
        return self.root / "logs"

    @property
    def run(self) -> Path:
        """What holds only while the system runs: lock, process identities, configuration."""
        return self.root / "run"

    @property
    def lock(self) -> Path:
        """Held (flock) by `manage.py up` for its life; its text is that process's pid."""
        return self.run / "up.lock"

    def make(self) -> None:
        """Make the folders, closed to other users."""
        for folder in (self.root, self.valkey, self.logs, self.run):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def ensure_secret_key(self) -> str:
        """Return the secret key, made at the first call."""
        if not self.secret_key.exists():
            write_private(self.secret_key, secrets.token_urlsafe(50))
        return self.secret_key.read_text().strip()


def write_private(path: Path, content: str) -> None:
    """Replace a file whole, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, content + "\n")


def read_line(path: Path) -> str:
    """Return a small file's text, or "" where there is none that we may read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
