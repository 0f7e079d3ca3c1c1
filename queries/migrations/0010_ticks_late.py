"""Rename an incident kind in the rules and maintenance windows that name it."""

from django.db import migrations


def rename(apps, schema_editor):
    for model in ("AlertRule", "Maintenance"):
        for row in apps.get_model("queries", model).objects.all():
            names = row.selector.get("kinds", [])
            if "beat-down" in names:
                row.selector["kinds"] = [
                    "ticks-late" if name == "beat-down" else name for name in names
                ]
                row.save(update_fields=["selector"])


class Migration(migrations.Migration):
    dependencies = [("queries", "0009_standbys")]

    operations = [migrations.RunPython(rename, migrations.RunPython.noop)]
