import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Spark UIs behind the log-in; drivers that are there already have none that can be shown."""

    dependencies = [
        ("queries", "0020_secret_bindings"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveField("driver", "ui_url"),
        migrations.AddField("driver", "ui_port", models.PositiveIntegerField(null=True)),
        migrations.CreateModel(
            name="SparkUiVisit",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("session_key", models.CharField(max_length=40)),
                ("created_at", models.DateTimeField(db_index=True)),
                ("ticket", models.CharField(max_length=64, unique=True)),
                ("opened_at", models.DateTimeField(null=True)),
                ("path", models.CharField(max_length=64, null=True, unique=True)),
                (
                    "driver",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="queries.driver",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
        ),
    ]
