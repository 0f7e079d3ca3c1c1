from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0004_lag_and_loss"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="replayed",
            field=models.JSONField(null=True),
        ),
    ]
