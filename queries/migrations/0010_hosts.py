"""Hosts with their signs of life; where each application and each operation is placed."""

from django.db import migrations, models


def place(apps, schema_editor):
    """Place each application on the host of its newest driver."""
    Application = apps.get_model("queries", "Application")
    drivers = apps.get_model("queries", "Driver").objects.filter(kind="SERVICE")
    newest = dict(drivers.order_by("epoch").values_list("application_id", "host"))
    by_host = {}
    for application, host in newest.items():
        by_host.setdefault(host, []).append(application)
    for host, found in by_host.items():
        for first in range(0, len(found), 500):
            Application.objects.filter(pk__in=found[first : first + 500]).update(host=host)


class Migration(migrations.Migration):
    dependencies = [
        ("queries", "0009_culprit"),
    ]

    operations = [
        migrations.CreateModel(
            name="Host",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=255, unique=True)),
                ("claim", models.CharField(default="", max_length=36)),
                ("boot_id", models.CharField(default="", max_length=64)),
                ("pid_space", models.CharField(default="", max_length=64)),
                ("pid", models.IntegerField(null=True)),
                ("start_time", models.BigIntegerField(null=True)),
                ("seen_at", models.DateTimeField(null=True)),
                ("steady_since", models.DateTimeField(null=True)),
                ("stopping_since", models.DateTimeField(null=True)),
            ],
            options={"ordering": ["name"]},
        ),
        migrations.AddField(
            "application", "host", models.CharField(db_index=True, default="", max_length=255)
        ),
        migrations.AddField("operation", "host", models.CharField(default="", max_length=255)),
        migrations.RunPython(place, migrations.RunPython.noop, elidable=False),
        migrations.RemoveField("installation", "stopping_since"),
    ]
