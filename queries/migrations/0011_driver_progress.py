"""Record how far the start of a driver has come."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queries", "0010_ticks_late")]

    operations = [
        migrations.AddField("driver", "advanced_at", models.DateTimeField(null=True)),
        migrations.AddField("driver", "advanced_cpu_s", models.FloatField(default=0)),
        migrations.AddField(
            "driver", "advanced_step", models.CharField(default="", max_length=40)
        ),
    ]
