from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0007_reasons_as_codes"),
    ]

    operations = [
        migrations.AlterField("application", "hold_reason", models.JSONField(default=dict)),
        migrations.AlterField("operation", "detail", models.JSONField(default=dict)),
        migrations.AlterField("query", "phase_detail", models.JSONField(default=dict)),
        migrations.AlterField("transition", "detail", models.JSONField(default=dict)),
        migrations.AlterField(
            "query", "phase_reason", models.CharField(default="NEVER_STARTED", max_length=60)
        ),
    ]
