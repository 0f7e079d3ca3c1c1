import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0008_details_as_json"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="at_death",
            field=models.CharField(default="", max_length=8),
        ),
        migrations.AddField(
            model_name="run",
            name="batch_at_death",
            field=models.BigIntegerField(null=True),
        ),
        migrations.AddField(
            model_name="operation",
            name="failure",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="queries.failure",
            ),
        ),
    ]
