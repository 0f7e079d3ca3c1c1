"""Rows that are made ready before a transaction are those that `bulk_create` would write."""

from typing import Any

import pytest
from django.db import connection
from django.forms.models import model_to_dict
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from queries.models.applications import Application
from queries.models.definitions import Query
from queries.services.changes import Prepared

pytestmark = pytest.mark.django_db


def rows(prefix: str, count: int) -> tuple[list[Application], list[Query]]:
    """Return new applications, and a query of each."""
    now = timezone.now()
    places = [
        Application(name=f"{prefix}{number}", labels={"n": str(number)}, created_at=now)
        for number in range(count)
    ]
    return places, [Query(name=one.name, application=one, created_at=now) for one in places]


def plain(row: Any) -> dict[str, Any]:
    left_out = ["id", "name", "created_at", "application", "labels"]
    return model_to_dict(row, exclude=left_out)


def test_rows_refer_to_others_that_are_new_as_well() -> None:
    places, queries = rows("a", 70)
    prepared = [Prepared[Any](places), Prepared[Any](queries)]
    for one in prepared:
        one.insert()
    found = Query.objects.select_related("application").order_by("pk")
    assert [row.name for row in found] == [row.name for row in queries]
    assert [row.application.name for row in found] == [row.name for row in found]
    assert [row.pk for row in queries] == [row.pk for row in found]
    assert [row.application.labels for row in found] == [row.labels for row in places]
    queries[0].save()
    assert Query.objects.count() == 70


def test_each_column_is_as_bulk_create_would_write_it() -> None:
    places, queries = rows("a", 1)
    for one in (Prepared[Any](places), Prepared[Any](queries)):
        one.insert()
    others, same = rows("b", 1)
    Application.objects.bulk_create(others)
    Query.objects.bulk_create(same)
    ours, theirs = Query.objects.get(name="a0"), Query.objects.get(name="b0")
    assert plain(ours) == plain(theirs)


def test_nothing_is_asked_before_and_nothing_where_there_are_none() -> None:
    with CaptureQueriesContext(connection) as asked:
        prepared = Prepared[Any](rows("a", 3)[0])
        assert len(asked) == 0
        Prepared[Any]([]).insert()
        assert len(asked) == 0
        prepared.insert()
        assert len(asked) == 1
