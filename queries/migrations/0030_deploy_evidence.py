"""What a deploy judges began after an epoch, and when each of its waves began and ended."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queries", "0029_script_questions")]

    operations = [
        migrations.AddField("deploychange", "restart_epoch", models.BigIntegerField(null=True)),
        migrations.AddField("deploy", "spans", models.JSONField(default=list)),
    ]
