"""Store which relations the SQL of a revision reads; `queries.ticks` fills in existing ones.

A deploy stores the queries of which not all is known.
"""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("queries", "0012_failure_masked_with")]

    operations = [
        migrations.AddField("queryrevision", "reads", models.JSONField(null=True)),
        migrations.AddField(
            "deploy",
            "unsure",
            models.JSONField(db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.AddIndex(
            "queryrevision",
            models.Index(
                condition=Q(kind="sql", reads__isnull=True),
                fields=["query"],
                name="revision_sql_unread",
            ),
        ),
    ]
