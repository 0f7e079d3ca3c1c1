"""Store an installation's choices in small files in HEADGATE_HOME.

The settings module reads these files too, so that a `manage.py` command uses the same Redis and the
same secret key as the processes started by `make run`. This module does not import Django, because
the settings module uses it.
"""

import errno
import fcntl
import secrets
from pathlib import Path

from headgate_ground.files import replace_file
from headgate_ground.tolerant import whole
from headgate_server import places


class StartProblem(Exception):
    """Something prevents a start; the message says what, and `way_out` says how to fix it."""

    def __init__(self, message: str, way_out: str) -> None:
        self.way_out = way_out
        super().__init__(places.with_local_commands(f"{message}\n  {way_out}"))


class Home:
    """The data folder of an installation, with the paths of its contents."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.secret_key = root / "secret_key"  # signs sessions, 0600
        #: Configuration and append-only files of the embedded Redis.
        self.valkey = root / "valkey"
        #: URL of the embedded Redis, with its password, 0600. It is not stored in the Redis folder,
        #: which may be lost: running drivers know the port and the password.
        self.redis_url = root / "redis_url"
        #: A JAVA_HOME of our own around the JRE from a wheel, if no other Java is found.
        self.java = root / "java"
        #: Trial servers, each with what it runs from, its data and its log; see
        #: `installation/machine`.
        self.kafka, self.s3, self.hadoop = root / "kafka", root / "s3", root / "hadoop"
        self.kubernetes = root / "kubernetes"
        self.host = root / "host"  # the host name of drivers, kept from the first start
        self.logs = root / "logs"  # one rotated log per program
        #: Files valid only while the system runs: lock, process identities, configuration.
        self.run = root / "run"
        #: Locked (flock) by `manage.py up` while it runs; contains that process's pid.
        self.lock = self.run / "up.lock"
        #: Exists while `manage.py up`, which holds the lock, creates the initial objects.
        self.preparing = self.run / "preparing"
        #: Exists while `manage.py up` is ending its programs.
        self.ending = self.run / "ending"

    def make(self) -> None:
        """Create the folders, inaccessible to other users; raise `StartProblem` on failure."""
        try:
            for folder in (self.root, self.valkey, self.logs, self.run):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.lock.open("a").close()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # has its own message
            raise StartProblem(
                f"The data folder {self.root} cannot be used: {error}.",
                "Set HEADGATE_HOME to a folder that this user can create or write to.",
            ) from error

    def holder(self) -> int | None:
        """Return the pid of the `manage.py up` that holds this folder, or None."""
        try:
            file = self.lock.open()
        except OSError:
            return None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return whole(file.read().strip())
        return None

    def stored_redis_url(self) -> str:
        """Return the URL of the embedded Redis; "" before its first start."""
        return read_line(self.redis_url)

    def keep_host(self, name: str) -> None:
        """Store the host's name for later starts, unless a name is already stored."""
        if not self.host.exists():
            write_private(self.host, name)

    def ensure_secret_key(self) -> str:
        """Return the secret key, which the first call creates."""
        if not self.secret_key.exists():
            write_private(self.secret_key, secrets.token_urlsafe(50))
        return self.secret_key.read_text().strip()


def write_private(path: Path, content: str) -> None:
    """Replace a file atomically; only its owner can read it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, content + "\n")


def read_line(path: Path) -> str:
    """Return a small file's text, or "" if there is no readable file."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
