"""Deploys: from which epoch what is judged began, when each wave did, and what follows the end."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queries", "0029_script_questions")]

    operations = [
        migrations.AddField("deploychange", "restart_epoch", models.BigIntegerField(null=True)),
        migrations.AddField("deploy", "spans", models.JSONField(default=list)),
        migrations.AddField("deploy", "follows", models.JSONField(default=list)),
    ]
