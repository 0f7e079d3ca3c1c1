"""The tests' tables on SQLite: migrated once for a state of the models, then copied.

Forty migrations take each process that runs tests seconds. Their outcome is kept in pytest's
cache under a digest of all that they are made of; what is not applied in a copy is applied there.
"""

import hashlib
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from importlib.metadata import distributions
from pathlib import Path

import pytest
from django.apps import apps

#: What of an app decides on its tables and on the rows that come with them.
_DECIDES = ("apps.py", "models.py", "models/**/*.py", "migrations/*.py", "roles.py", "domain/*.py")


def fetch(config: pytest.Config, target: Path) -> bool:
    """Put the tables that an earlier process kept into a file; tell whether there were some."""
    kept = _kept(config)
    if kept is None:
        return False
    try:
        shutil.copyfile(kept, target)
    except FileNotFoundError:
        return False
    return True


def keep(config: pytest.Config, source: Path) -> None:
    """Keep a process's new tables for the next one, and forget those of older models."""
    kept = _kept(config)
    if kept is None or kept.exists():
        return
    for old in kept.parent.glob("*.sqlite3"):
        old.unlink(missing_ok=True)  # another worker may do the same
    number, name = tempfile.mkstemp(dir=kept.parent)
    os.close(number)
    with closing(sqlite3.connect(source)) as one, closing(sqlite3.connect(name)) as other:
        one.backup(other)
    os.replace(name, kept)


def _kept(config: pytest.Config) -> Path | None:
    """Return where the tables of these models are or would be; None without pytest's cache."""
    cache: pytest.Cache | None = getattr(config, "cache", None)  # -p no:cacheprovider
    return None if cache is None else Path(cache.mkdir("headgate-tables")) / f"{_digest()}.sqlite3"


def _digest() -> str:
    digest = hashlib.sha256()
    for package in sorted(f"{one.name} {one.version}" for one in distributions()):
        digest.update(package.encode())
    for app in apps.get_app_configs():
        root = Path(app.path)
        for file in sorted(found for pattern in _DECIDES for found in root.glob(pattern)):
            digest.update(f"{app.label} {file.relative_to(root)}".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()
