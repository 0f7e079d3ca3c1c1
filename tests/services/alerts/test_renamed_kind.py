"""Rules and windows about Celery beat are about late periodic work after the migration."""

from importlib import import_module

import pytest
from django.apps import apps
from django.utils import timezone

from queries.models.alerts import AlertRule, Maintenance

pytestmark = pytest.mark.django_db


def test_a_kind_that_rules_and_windows_name_is_renamed() -> None:
    now = timezone.now()
    made = {"created_at": now, "created_by": "ada"}
    AlertRule.objects.create(name="a", selector={"kinds": ["disk", "beat-down"]}, **made)
    AlertRule.objects.create(name="b", selector={}, **made)
    selector = {"kinds": ["beat-down"], "labels": {"team": "data"}}
    Maintenance.objects.create(name="c", selector=selector, starts_at=now, ends_at=now, **made)
    import_module("queries.migrations.0010_ticks_late").rename(apps, None)
    assert AlertRule.objects.get(name="a").selector == {"kinds": ["disk", "ticks-late"]}
    assert AlertRule.objects.get(name="b").selector == {}
    assert Maintenance.objects.get().selector == {
        "kinds": ["ticks-late"],
        "labels": {"team": "data"},
    }
