import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0005_replayed_after_a_start"),
    ]

    operations = [
        migrations.AddField(
            model_name="driver",
            name="operation",
            field=models.OneToOneField(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="probe",
                to="queries.operation",
            ),
        ),
    ]
