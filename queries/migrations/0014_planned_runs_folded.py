"""Make one row of consecutive planned times that were skipped at once."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queries", "0013_revision_reads")]

    operations = [
        migrations.AddField("plannedrun", "first_due_at", models.DateTimeField(null=True)),
        migrations.AddField(
            "plannedrun", "due_times", models.PositiveIntegerField(db_default=1, default=1)
        ),
    ]
