"""A deploy's token and address, and the applications that it touches."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queries", "0030_deploy_evidence")]

    operations = [
        migrations.AddField("deploy", "asker", models.JSONField(default=dict)),
        migrations.AddField("deploy", "touches", models.JSONField(default=list)),
    ]
