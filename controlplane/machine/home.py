"""What an installation has chosen, in small files in HEADGATE_HOME.

Settings read them too, so that a `manage.py` command uses the same Redis and the same secret
key as the processes that `make run` started. Imports no Django, because settings use it.
"""

import secrets
from pathlib import Path

from queries.files import replace_file


class Home:
    """The data folder of an installation, by the names of what is in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.secret_key = root / "secret_key"  # signs sessions, 0600
        #: Configuration and append-only files of the embedded Redis.
        self.valkey = root / "valkey"
        self.redis_url = self.valkey / "url"  # of the embedded Redis, with its password, 0600
        #: A JAVA_HOME of our own around the JRE in a wheel, where no other Java is found.
        self.java = root / "java"
        self.kafka = root / "kafka"  # the trial broker: its jars, records and log; see `kafka.py`
        self.host = root / "host"  # the name that drivers belong to, kept from the first start
        self.logs = root / "logs"  # one rotated log a program
        #: What holds only while the system runs: lock, process identities, configuration.
        self.run = root / "run"
        #: Locked (flock) by `manage.py up` for its life; its text is that process's pid.
        self.lock = self.run / "up.lock"
        #: Is there while `manage.py up`, which holds the lock, creates what people begin with.
        self.preparing = self.run / "preparing"

    def make(self) -> None:
        """Create the folders, closed to other users."""
        for folder in (self.root, self.valkey, self.logs, self.run):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep_host(self, name: str) -> None:
        """Keep the host's name for the next starts, unless one is kept already."""
        if not self.host.exists():
            write_private(self.host, name)

    def ensure_secret_key(self) -> str:
        """Return the secret key, created at the first call."""
        if not self.secret_key.exists():
            write_private(self.secret_key, secrets.token_urlsafe(50))
        return self.secret_key.read_text().strip()


def write_private(path: Path, content: str) -> None:
    """Replace a file atomically, readable by its owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, content + "\n")


def read_line(path: Path) -> str:
    """Return a small file's text, or "" where there is none that we may read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
