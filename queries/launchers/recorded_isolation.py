"""The isolation that this host's worker has tested and recorded, for pages and for `make run`."""

import json
from dataclasses import asdict

from django.conf import settings

from headgate_ground.files import read_file, replace_file
from queries.domain.hosts import IsolationChoice, Mode

FILE = "walls.json"


def record_isolation(choice: IsolationChoice) -> None:
    """Write the isolation to HEADGATE_HOME. Raises `OSError`, such as on a full disk."""
    replace_file(settings.HEADGATE_HOME / FILE, json.dumps(asdict(choice)))


def recorded_isolation() -> IsolationChoice | None:
    """Return the isolation recorded by this host's worker; None if there has been no worker yet."""
    try:
        text = read_file(settings.HEADGATE_HOME / FILE)
        held = json.loads(text) if text else None
        return IsolationChoice(**{**held, "mode": Mode(held["mode"])}) if held else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
