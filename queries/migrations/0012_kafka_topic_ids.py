from django.db import migrations, models

import queries.domain.states


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0011_health_and_lag_evidence"),
    ]

    operations = [
        migrations.AddField("checkpoint", "topic_ids", models.JSONField(default=dict)),
        migrations.AddField("loss", "topic_id", models.CharField(default="", max_length=40)),
        migrations.AddField("sourcelag", "replaced", models.BooleanField(default=False)),
        migrations.AlterField(
            "loss",
            "kind",
            models.CharField(
                choices=[(kind, kind) for kind in queries.domain.states.LossKind], max_length=12
            ),
        ),
    ]
