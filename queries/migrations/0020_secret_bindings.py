from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.db import migrations, models

import queries.domain.secrets.bindings
from queries.channels.places import place_of
from queries.domain.masking import references
from queries.domain.secrets.uses import uses_in

#: (secret, kind of holder, name of holder, place)
Use = tuple[str, str, str, str]


def bind_what_is_in_use(apps: Any, schema_editor: Any) -> None:
    """Bind each secret to who names it now, for the hosts that its definitions name.

    Counted are the newest revisions of what is living, what is pinned, and what runs.
    """
    bound: dict[tuple[str, str, str], list[str]] = {}
    for secret, kind, holder, place in [*_of_applications(apps), *_of_channels(apps)]:
        hosts = bound.setdefault((secret, kind, holder), [])
        if place not in hosts:
            hosts.append(place)
    now = datetime.now(UTC)
    apps.get_model("queries", "SecretBinding").objects.bulk_create(
        [
            apps.get_model("queries", "SecretBinding")(
                secret=secret, holder_kind=kind, holder=holder, hosts=hosts, given_at=now
            )
            for (secret, kind, holder), hosts in sorted(bound.items())
            if len(secret) <= 200
        ]
    )


def _of_applications(apps: Any) -> Iterator[Use]:
    for application in apps.get_model("queries", "Application").objects.filter(archived_at=None):
        for spec in _specs(apps, application):
            for use in uses_in(spec):
                for place in use.places:
                    yield use.secret, "application", application.name, place


def _specs(apps: Any, application: Any) -> Iterator[dict[str, Any]]:
    newest = application.revisions.order_by("-number").first()
    pinned = application.target_revision
    drivers = apps.get_model("queries", "Driver").objects.filter(
        application=application, ended_at=None
    )
    running = [one.application_revision for one in drivers.select_related("application_revision")]
    runs = apps.get_model("queries", "Run").objects.filter(
        query__application=application, ended_at=None
    )
    running += [one.revision for one in runs.select_related("revision")]
    for query in application.queries.filter(archived_at=None).select_related("target_revision"):
        running += [query.revisions.order_by("-number").first(), query.target_revision]
    for revision in [newest, pinned, *running]:
        if revision is not None and isinstance(revision.spec, dict):
            yield revision.spec


def _of_channels(apps: Any) -> Iterator[Use]:
    for channel in apps.get_model("queries", "Channel").objects.all():
        for secret in references(channel.settings):
            yield secret, "channel", channel.name, place_of(channel.kind, channel.settings)


class Migration(migrations.Migration):
    """Secrets are bound to who may name them, and applications have data roots of their own."""

    dependencies = [("queries", "0019_teams")]

    operations = [
        migrations.CreateModel(
            name="GivenRoot",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("given_at", models.DateTimeField()),
                ("given_by", models.CharField(max_length=150)),
                ("taken_at", models.DateTimeField(null=True)),
                ("taken_by", models.CharField(default="", max_length=150)),
                ("application", models.CharField(max_length=80)),
                ("root", models.CharField(max_length=1000)),
            ],
            options={
                "ordering": ["application", "root", "-given_at"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("taken_at__isnull", True)),
                        fields=("application", "root"),
                        name="given_root_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="SecretBinding",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("given_at", models.DateTimeField()),
                ("given_by", models.CharField(max_length=150)),
                ("taken_at", models.DateTimeField(null=True)),
                ("taken_by", models.CharField(default="", max_length=150)),
                ("secret", models.CharField(max_length=200)),
                (
                    "holder_kind",
                    models.CharField(
                        choices=[
                            (kind, kind) for kind in queries.domain.secrets.bindings.HolderKind
                        ],
                        max_length=11,
                    ),
                ),
                ("holder", models.CharField(max_length=80)),
                ("hosts", models.JSONField(default=list)),
            ],
            options={
                "ordering": ["secret", "holder_kind", "holder", "-given_at"],
                "indexes": [models.Index(fields=["holder_kind", "holder"], name="secret_holder")],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("taken_at__isnull", True)),
                        fields=("secret", "holder_kind", "holder"),
                        name="secret_binding_once",
                    )
                ],
            },
        ),
        migrations.RunPython(bind_what_is_in_use, migrations.RunPython.noop),
    ]
