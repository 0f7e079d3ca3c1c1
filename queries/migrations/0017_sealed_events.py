from django.db import migrations, models


class Migration(migrations.Migration):
    """Drivers that are there already seal nothing, and are believed until they end."""

    dependencies = [("queries", "0016_saved_views")]

    operations = [
        migrations.AddField("driver", "seals_events", models.BooleanField(default=False)),
        migrations.AlterField("driver", "seals_events", models.BooleanField(default=True)),
    ]
