"""Resolve what nobody can act on: open failures of queries and applications that are deleted."""

from django.db import migrations
from django.db.models import F, Q


def resolve(apps, schema_editor):
    groups = apps.get_model("queries", "FailureGroup").objects.filter(status="OPEN")
    deleted = (("query__archived_at", ~Q(query=None)), ("application__archived_at", Q(query=None)))
    for column, whose in deleted:
        for group in groups.filter(whose, **{f"{column}__isnull": False}).annotate(gone=F(column)):
            group.status, group.resolved_at = "RESOLVED", group.gone
            group.save(update_fields=["status", "resolved_at"])


class Migration(migrations.Migration):
    dependencies = [("queries", "0013_incidents_and_labels")]

    operations = [migrations.RunPython(resolve, migrations.RunPython.noop)]
