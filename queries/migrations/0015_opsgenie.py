"""Disable the channels to Opsgenie, whose support ends, and give up their waiting messages."""

from django.db import migrations, models

KINDS = (
    "failed",
    "broken",
    "crash-loop",
    "stalled",
    "zombie",
    "blind",
    "lagging",
    "at-risk",
    "at-risk-stopped",
    "sql-refused",
    "source-unreachable",
    "records-lost",
    "late-records",
    "events-dropped",
    "state-limit",
    "threshold",
    "replay",
    "checkpoint-moved",
    "stuck-stop",
    "preflight-failing",
    "driver-deaths",
    "query-identity",
    "host-silent",
    "disk",
    "web-down",
    "database-down",
    "redis-down",
    "worker-down",
    "ticks-late",
    "ingester-down",
    "data-old",
    "no-channel",
    "channel-dead",
)
REASON = "Headgate no longer sends to Opsgenie. Choose another kind for this channel, or delete it."


def disable(apps, schema_editor):
    channels = apps.get_model("queries", "Channel").objects.filter(kind="opsgenie")
    channels.update(enabled=False, failing_since=None, last_error=REASON)
    waiting = apps.get_model("queries", "Delivery").objects.filter(
        channel__kind="opsgenie", state="WAITING"
    )
    waiting.update(state="GIVEN_UP", attempt_after=None, last_error=REASON)


class Migration(migrations.Migration):
    dependencies = [("queries", "0014_planned_runs_folded")]

    operations = [
        migrations.RunPython(disable, migrations.RunPython.noop),
        migrations.AlterField(
            "incident",
            "kind",
            models.CharField(choices=[(kind, kind) for kind in KINDS], max_length=24),
        ),
    ]
