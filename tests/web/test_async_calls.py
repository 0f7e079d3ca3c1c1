"""A query's Async tab: only where its progress tells of async operators."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from listeners.models import Latest, Progress
from queries.views.console.fragments import draw
from tests.domain.test_async_calls import progress
from tests.scenarios.stage import Stage
from tests.web.batches import batches
from tests.web.supervision.test_query_page import text, words

TAB = '/queries/delays/async/"'


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


def tell(stage: Stage, **changed: Any) -> int:
    """Let the query's newest batches tell of an async operator; return the query's id."""
    query = stage.query("delays")
    stage.up("delays")
    for stored in batches(stage.run("delays"), 3, until=timezone.now()):
        stored.body |= progress(**changed)
        stored.save()
    newest = Progress.objects.filter(query=query.pk).latest("at")
    Latest.objects.filter(query=query.pk).update(progress=newest.body)
    return int(query.pk)


def test_a_query_without_async_calls_has_no_such_tab(vera: Client, stage: Stage) -> None:
    stage.query("delays")
    assert TAB not in text(vera.get("/queries/delays/"))
    assert "No async calls yet" in text(vera.get("/queries/delays/async/"))


def test_figures_and_advice_stand_on_the_tab(vera: Client, stage: Stage) -> None:
    tell(stage)
    assert TAB in text(vera.get("/queries/delays/"))
    page = words(text(vera.get("/queries/delays/async/")))
    assert "planes" in page
    assert "30,000 calls in 3 batches" in page
    assert "64 / 64" in page
    assert "Limited by the limit on calls in flight" in page
    assert "allowing 128 calls in flight gives up to 20,000 calls per second" in page


def test_a_remote_that_fails_a_fifth_of_its_calls_is_told_in_the_head(
    vera: Client, stage: Stage
) -> None:
    tell(stage, errors=2000.0, retries=2000.0)
    for tab in ("", "async/"):
        page = words(text(vera.get(f"/queries/delays/{tab}")))
        assert "20% of the calls of &#x27;planes&#x27; fail: 2,000 of 10,000" in page


def test_the_tab_is_drawn_live(stage: Stage) -> None:
    pk = tell(stage)
    ((event, html),) = draw(f"async:{pk}", None, timezone.now())
    assert event == f"async-{pk}"
    assert "planes" in html
    assert draw("async:0", None, timezone.now()) == []


def test_the_tab_is_shut_to_somebody_without_a_role(
    client: Client, outsider: User, stage: Stage
) -> None:
    stage.query("delays")
    client.force_login(outsider)
    assert client.get("/queries/delays/async/").status_code == 403
