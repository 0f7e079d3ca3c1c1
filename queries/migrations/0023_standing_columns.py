import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models


class Migration(migrations.Migration):
    """The database keeps how a query stands, with indexes for lists, counts and ticks."""

    dependencies = [
        ("queries", "0022_audit_trail_and_sessions"),
    ]

    operations = [
        migrations.AddField(
            model_name="query",
            name="changing",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.Case(
                    models.When(
                        models.Q(
                            models.Q(
                                ("desired", "STOPPED"),
                                models.Q(("phase__in", ["COMPLETED", "STOPPED"]), _negated=True),
                            ),
                            models.Q(
                                models.Q(("desired", "STOPPED"), _negated=True),
                                models.Q(("phase", "RUNNING"), _negated=True),
                                models.Q(
                                    ("hold", ""),
                                    models.Q(
                                        ("generation", models.F("seen_generation")), _negated=True
                                    ),
                                    _connector="OR",
                                ),
                            ),
                            _connector="OR",
                        ),
                        then=models.Value(True),
                    ),
                    default=models.Value(False),
                ),
                output_field=models.BooleanField(),
            ),
        ),
        migrations.AddField(
            model_name="query",
            name="own_rank",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.Case(
                    models.When(models.Q(("risk", ""), _negated=True), then=models.Value(0)),
                    models.When(
                        models.Q(
                            ("phase__in", ["BACKOFF", "BROKEN", "FAILED", "LOST"]),
                            models.Q(
                                ("phase__in", ("RUNNING", "STARTING")),
                                ("verdict__in", ["BLIND", "LAGGING", "STALLED", "ZOMBIE"]),
                            ),
                            ("phase_reason__in", ["STUCK", "WAITS_THREAD"]),
                            models.Q(
                                ("desired", "RUNNING"), ("source_unreachable_since__isnull", False)
                            ),
                            _connector="OR",
                        ),
                        then=models.Value(1),
                    ),
                    default=models.Value(2),
                ),
                output_field=models.PositiveSmallIntegerField(),
            ),
        ),
        migrations.AddField(
            model_name="queryrevision",
            name="names_kafka",
            field=models.GeneratedField(
                db_persist=True,
                expression=models.Case(
                    models.When(
                        django.db.models.lookups.Contains(
                            django.db.models.functions.comparison.Cast("spec", models.TextField()),
                            '"kafka"',
                        ),
                        then=models.Value(True),
                    ),
                    default=models.Value(False),
                ),
                output_field=models.BooleanField(),
            ),
        ),
        migrations.AddIndex(
            model_name="checkpoint",
            index=models.Index(
                condition=models.Q(("foreign_last__isnull", False), ("retired_at__isnull", True)),
                fields=["foreign_at"],
                name="checkpoint_foreign",
            ),
        ),
        migrations.AddIndex(
            model_name="query",
            index=models.Index(
                condition=models.Q(("archived_at__isnull", True)),
                fields=["own_rank", "name"],
                name="query_listed",
            ),
        ),
        migrations.AddIndex(
            model_name="query",
            index=models.Index(
                condition=models.Q(("archived_at__isnull", True), ("desired", "RUNNING")),
                fields=["application"],
                name="query_wanted",
            ),
        ),
        migrations.AddIndex(
            model_name="query",
            index=models.Index(
                condition=models.Q(("archived_at__isnull", True)),
                fields=["phase", "verdict", "own_rank", "changing"],
                name="query_counted",
            ),
        ),
        migrations.AddIndex(
            model_name="queryrevision",
            index=models.Index(
                condition=models.Q(("names_kafka", True)),
                fields=["query"],
                name="revision_naming_kafka",
            ),
        ),
    ]
