"""Record which version of the table of secrets a stored failure was masked with."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("queries", "0011_driver_progress")]

    operations = [
        migrations.AddField(
            "failure", "masked_with", models.CharField(db_default="", default="", max_length=8)
        )
    ]
