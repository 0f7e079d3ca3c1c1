"""The locations of an installation's files, in a checkout or in an installed wheel.

This module imports only the names of our packages, and none of our other code, because the
settings use it.
"""

import os
import re
from importlib import resources
from pathlib import Path

from headgate_ground import packages

#: The folder with our packages: a checkout's root, or a wheel's `site-packages`.
ROOT = Path(__file__).resolve().parent.parent
_BUILT_IN = Path(str(resources.files(__package__))).resolve() / "data"
#: Whether this is an installed wheel; its build puts the data into this package.
INSTALLED = _BUILT_IN.is_dir()
#: The folder with `templates/`, `static/`, `docs/`, `examples/` and `connectors/`.
DATA = _BUILT_IN if INSTALLED else ROOT
#: The exact versions of all dependencies; a wheel has them for `pip install -c`.
LOCKED = DATA / ("constraints.txt" if INSTALLED else "requirements.txt")
#: A wheel's names for the checkout commands in messages.
_COMMANDS = {
    "make run": "headgate-server up",
    "make stop": "headgate-server stop",
    "make kafka": "headgate-server kafka",
    "make s3": "headgate-server s3",
    "make hadoop": "headgate-server hadoop",
    "make kubernetes": "headgate-server kubernetes",
    ".venv/bin/python manage.py": "headgate-server manage",
    "manage.py": "headgate-server manage",
}
#: `make connector ARGS="avro --spark 4.2"`, with or without quotes.
_WITH_ARGUMENTS = re.compile(r'make (connector|spark) ARGS=(?:"([^"]*)"|(\S))')


def _users_data() -> Path:
    """Return the user's data folder according to the XDG Base Directory Specification."""
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    return named if named.is_absolute() else Path("~/.local/share").expanduser()


#: The data folder, unless HEADGATE_HOME names another.
HOME = _users_data() / "headgate" if INSTALLED else ROOT / "var"


def own() -> list[Path]:
    """Return the folders of our code: no allowed path may be inside one.

    A checkout is entirely ours, because git and make run its content. `site-packages` is shared
    with all installed packages, and is protected together with its Python environment.
    """
    folders = [ROOT / name for name in packages.OURS]
    return folders if INSTALLED else [ROOT, *folders]


def import_path() -> tuple[str, ...]:
    """Return the PYTHONPATH with which our Python processes import our packages.

    Packages in `site-packages` do not need it, and are found after the standard library.
    """
    return () if INSTALLED else (str(ROOT),)


def with_local_commands(text: str) -> str:
    """Return a message with the commands that work in this installation."""
    if INSTALLED:
        text = _WITH_ARGUMENTS.sub(r"headgate-server \1 \2\3", text)
        for ours, theirs in _COMMANDS.items():
            text = text.replace(ours, theirs)
    return text
