"""Rename the fields of schedules wherever a row contains a definition.

Revisions keep their numbers, so nothing is restarted. Audit rows keep what was written.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from django.db import migrations
from django.db.models import Q, TextField
from django.db.models.functions import Cast

FIELDS = {
    "quiet_s": "quiet_period_s",
    "look_s": "poll_interval_s",
    "limit_s": "timeout_s",
    "missed_window_s": "catch_up_window_s",
}
FIELDS_BACK = {new: former for former, new in FIELDS.items()}
#: Keys of JSON whose values are users' own.
OWN = frozenset({"labels", "params", "options", "conf", "env"})


def renamed_in(value: Any, names: dict[str, str]) -> Any:
    """Return a JSON value with the fields renamed of every schedule in it."""
    if isinstance(value, list):
        return [renamed_in(part, names) for part in value]
    if not isinstance(value, dict):
        return value
    result = {}
    for key, part in value.items():
        if key in OWN:
            result[key] = part
        elif key == "schedule" and isinstance(part, dict):
            result[key] = _renamed(part, names)
        else:
            result[key] = renamed_in(part, names)
    # The body of a schedule itself, as an answer to a pause has it.
    return _renamed(result, names) if names.keys() <= result.keys() else result


def _renamed(schedule: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): part for key, part in schedule.items()}


def _rename(apps: Any, names: dict[str, str]) -> None:
    def rows(model: str, **which: Any) -> Any:
        return apps.get_model("queries", model).objects.filter(**which)

    _rewrite(rows("QueryRevision"), "spec", names)
    _rewrite(rows("ApplicationRevision"), "spec", names)
    _rewrite(rows("Managed"), "applied", names)
    _rewrite(rows("Deploy", ended_at=None), "asked", names)
    _rewrite(rows("DeployChange", over=False), "spec", names)
    _rewrite(rows("KeptAnswer", body__isnull=False), "body", names)


def _rewrite(rows: Any, column: str, names: dict[str, str]) -> None:
    """Rename the fields in a JSON column, and write only the rows that change."""
    for pk, value in _chunks(rows, column, names):
        if (renamed := renamed_in(value, names)) != value:
            rows.model.objects.filter(pk=pk).update(**{column: renamed})


def _chunks(rows: Any, column: str, names: dict[str, str]) -> Iterator[tuple[int, Any]]:
    # The database finds the few rows that contain a schedule.
    contains = Q()
    for name in names:
        contains |= Q(text__contains=f'"{name}"')
    some = rows.alias(text=Cast(column, TextField())).filter(contains)
    last = 0
    while chunk := list(some.filter(pk__gt=last).order_by("pk").values_list("pk", column)[:500]):
        yield from chunk
        last = chunk[-1][0]


def rename(apps, schema_editor):
    _rename(apps, FIELDS)


def restore(apps, schema_editor):
    _rename(apps, FIELDS_BACK)


class Migration(migrations.Migration):
    dependencies: ClassVar = [("queries", "0017_state_names")]

    operations: ClassVar = [migrations.RunPython(rename, restore)]
