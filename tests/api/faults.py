"""What every refusal has to say: which field, what was given, and what to do."""

import json
from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from django.apps import apps
from django.core.serializers import serialize

#: The tables that a definition is made of, and what tells of its changes.
DEFINITIONS = (
    *("Application", "ApplicationRevision", "SchedulerPool", "Query", "QueryRevision"),
    *("Checkpoint", "AlertRule", "Managed", "Transition", "Operation", "AuditEntry"),
    *("Script", "UploadedCode", "Deploy", "DeployChange", "CodeHost"),
)


def definitions() -> str:
    """Return a hash over every row that a definition is made of."""
    rows = [
        serialize("json", apps.get_model("queries", name).objects.order_by("pk"))
        for name in DEFINITIONS
    ]
    return sha256(json.dumps(rows).encode()).hexdigest()


def check_told(problems: Iterable[dict[str, Any]], *, nothing_given: bool = False) -> None:
    """See that each problem has a field, the value and a way out.

    nothing_given: the field is missing or empty, or its value is a secret.
    """
    told = list(problems)
    assert told, "nothing is blamed"
    for one in told:
        assert one["field"], one
        assert one["message"], one
        assert one["way_out"], one
        assert one["value"] or nothing_given, one
