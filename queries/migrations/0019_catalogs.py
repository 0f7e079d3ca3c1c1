"""Add catalogs, and secrets that are granted to them."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("queries", "0018_schedule_fields")]

    operations: ClassVar = [
        migrations.AlterField(
            model_name="secretbinding",
            name="holder_kind",
            field=models.CharField(
                choices=[
                    ("application", "application"),
                    ("channel", "channel"),
                    ("catalog", "catalog"),
                ],
                max_length=11,
            ),
        ),
        migrations.CreateModel(
            name="Catalog",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("name", models.CharField(max_length=80, unique=True)),
                ("type", models.CharField(choices=[("rest", "rest")], max_length=4)),
                ("address", models.CharField(max_length=1000)),
                ("warehouse", models.CharField(default="", max_length=1000)),
                ("properties", models.JSONField(default=dict)),
                ("secret", models.CharField(default="", max_length=200)),
                (
                    "auth",
                    models.CharField(
                        choices=[("credential", "credential"), ("token", "token")], max_length=10
                    ),
                ),
                ("vended", models.BooleanField(default=False)),
                ("created_at", models.DateTimeField()),
                ("created_by", models.CharField(max_length=150)),
                ("changed_at", models.DateTimeField()),
                ("changed_by", models.CharField(max_length=150)),
                ("teams", models.ManyToManyField(to="queries.team")),
            ],
            options={"ordering": ["name"]},
        ),
    ]
