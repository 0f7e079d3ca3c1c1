"""A script's question: which query is which after a query got another name."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queries", "0028_token_guesses")]

    operations = [
        migrations.AddField("script", "question", models.JSONField(default=dict)),
        migrations.AddField("script", "accepted", models.JSONField(default=list)),
        migrations.AddField("query", "gone_at", models.DateTimeField(null=True)),
    ]
