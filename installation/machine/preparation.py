"""Prepare the prerequisites of the programs: database, static files, first admin."""

import hashlib
import os
import secrets
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.staticfiles import finders
from django.core.management import call_command
from django.db import DatabaseError, connection, connections

from controlplane import environment
from controlplane.home import StartProblem, read_line, write_private
from headgate_ground.masking import mask_text
from queries.jvm.compiled import NotCompiled, existing, our_jar
from queries.releases import TablesRefused
from queries.services.system.installation import resume


def database_sentence() -> str:
    """Return a description of the database in use, without its password."""
    if connection.vendor == "sqlite":
        return f"SQLite at {settings.DATABASES['default']['NAME']}"
    return f"{connection.display_name} at {mask_text(environment.value_of('DATABASE_URL'))}"


def prepare_database(now: datetime) -> None:
    """Migrate the tables, and let supervision restart the drivers that a stop had ended.

    Raises `Trouble` if the database cannot be used, or belongs to another release.
    """
    try:
        call_command("migrate", interactive=False, verbosity=0)
        resume(now=now)
    except TablesRefused as refused:
        raise StartProblem(refused.message, refused.way_out) from refused
    except DatabaseError as error:
        raise StartProblem(
            f"The database cannot be used: {mask_text(str(error)).strip()}",
            "Start or repair it, correct DATABASE_URL, or unset DATABASE_URL to use SQLite.",
        ) from error
    finally:
        connections.close_all()


def collect_static_files() -> bool:
    """Collect the static files if any of them has changed; return whether any had."""
    stamp = settings.STATIC_ROOT / ".collected"
    digest = _static_digest()
    if read_line(stamp) == digest:
        return False
    call_command("collectstatic", interactive=False, verbosity=0)
    write_private(stamp, digest)
    return True


def _static_digest() -> str:
    """Return a digest of the path, size and time of every static file."""
    lines = []
    for finder in finders.get_finders():
        for path, storage in finder.list([]):
            status = os.stat(storage.path(path))
            lines.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def lacks_java_classes() -> bool:
    """Return whether our Java classes must be compiled on this host: no wheel brought them."""
    return existing(settings.JARS_DIR) is None


def compile_java_classes(java_home: Path) -> str:
    """Compile our Java classes; return "", or a sentence that says why there are none.

    Everything runs without them, except queries whose checkpoints are not on a local disk: those
    wait, and the worker tries again.
    """
    try:
        our_jar(settings.JARS_DIR, str(java_home))
    except NotCompiled as error:
        return f"{error} Until then, queries with checkpoints on S3 or HDFS wait."
    return ""


def first_admin() -> str | None:
    """Create `admin` with a random password if there is no user yet; return the password."""
    users = get_user_model()
    try:
        if users.objects.exists():
            return None
        password = secrets.token_urlsafe(12)
        users.objects.create_superuser(username="admin", password=password)
        return password
    finally:
        connections.close_all()
