"""End the open installations: the worker no longer installs Spark and connectors."""

from django.db import migrations
from django.utils import timezone

from queries.domain.reasons import noted

REASON = (
    "The worker no longer installs Spark and connectors. Run the command that the page Connectors "
    "or System shows, on this host."
)


def end(apps, schema_editor):
    for row in apps.get_model("queries", "Operation").objects.filter(verb="install", outcome=""):
        for step in row.steps:
            if step["state"] == "DOING":
                step["state"] = "FAILED"
        row.outcome, row.detail = "FAILED", noted(REASON).as_json()
        row.ended_at, row.leased_until = timezone.now(), None
        row.save(update_fields=["steps", "outcome", "detail", "ended_at", "leased_until"])


class Migration(migrations.Migration):
    dependencies = [("queries", "0015_opsgenie")]

    operations = [migrations.RunPython(end, migrations.RunPython.noop)]
