"""The lineage on pages: the picture, its table, and what is unknown."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from listeners.models import Latest
from queries.models.definitions import Query, QueryRevision
from queries.selectors.lineage import lineage
from tests.domain.lineage.test_datasets import kafka, part
from tests.scenarios.stage import Stage
from tests.web.supervision.test_query_page import text, words

pytestmark = pytest.mark.django_db


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


def flow(stage: Stage) -> None:
    """Define `raw`, whose topic `late` reads, whose files `daily` reads; and code."""
    stage.query("raw", sink=kafka(topic="flights"))
    source = {"name": "flights", **kafka(subscribe="flights")}
    stage.query("late", sources=[source], sink=part("parquet", path="/data/late"))
    stage.query("daily", sources=[{"name": "flights", **part("parquet", path="/data/late")}])
    stage.query("apart", sources=[{"name": "flights", **part("json", path="/elsewhere")}])


def told(stage: Stage, name: str, source: str, sink: str, **more: Any) -> None:
    """Define a query of code whose newest batch describes its source and its sink."""
    stage.query(name, kind="python", function="m:f", sources=[], sink=None)
    query = stage.row(name)
    QueryRevision.objects.filter(query=query).update(kind="python")
    progress = {"timestamp": "2026-01-05T03:00:00.000Z", "batchId": 1} | {
        "sources": [{"description": source, **more}],
        "sink": {"description": sink},
    }
    Latest.objects.create(
        query=query.pk,
        driver=1,
        epoch=1,
        seq=1,
        run=1,
        at=stage.now,
        progress_at=stage.now,
        batch=1,
        progress=progress,
    )


def test_the_picture_links_queries_and_the_table_says_the_same(vera: Client, stage: Stage) -> None:
    flow(stage)
    page = text(vera.get("/lineage/"))
    for name in ("raw", "late", "daily"):
        assert re.search(rf'<a href="/queries/{name}/"><g class="lineage-node', page)
    assert page.count("lineage-line") == 5
    rows = words(page)
    assert "raw writes flights topic b1:9092 definition" in rows
    assert "daily reads /data/late path – definition" in rows


@pytest.mark.sql("queries.selectors.supervision.query_filters.matching")
def test_filters_keep_what_matches_and_its_neighbours(vera: Client, stage: Stage) -> None:
    flow(stage)
    Query.objects.filter(name="late").update(labels={"team": "data"})
    for asked in ("q=lat", "application=late", "label=team=data"):
        page = text(vera.get(f"/lineage/?{asked}"))
        assert ">daily<" in page
        assert ">raw<" in page
        assert ">apart<" not in page
    assert "No lineage matches" in text(vera.get("/lineage/?q=nothing"))
    assert "No lineage matches" in text(vera.get("/lineage/?q=%00late&label=other"))


def test_without_queries_the_page_says_what_will_be_there(vera: Client, db: None) -> None:
    assert "No lineage yet" in text(vera.get("/lineage/"))


def test_a_querys_tab_shows_all_that_is_up_and_down_its_stream(vera: Client, stage: Stage) -> None:
    flow(stage)
    page = text(vera.get("/queries/late/lineage/"))
    assert "Upstream raw Downstream daily" in words(page)
    assert "lineage-focus" in page
    assert ">apart<" not in page
    assert "Upstream no known query" in words(text(vera.get("/queries/apart/lineage/")))


@pytest.mark.sql("listeners.selectors.described")
def test_what_code_uses_is_known_from_sparks_report_with_its_time(
    vera: Client, stage: Stage
) -> None:
    flow(stage)
    told(stage, "code", "KafkaV2[Subscribe[flights]]", "ForeachBatchSink")
    page = text(vera.get("/queries/code/lineage/"))
    assert "Upstream raw" in words(page)
    assert "Spark’s report of" in words(page)
    assert "lineage-reported" in page
    assert "code Writes by foreachBatch: unknown." in words(page)


def test_a_running_query_counts_as_it_runs_and_not_as_it_was_edited(stage: Stage) -> None:
    flow(stage)
    stage.up("late")
    newest = stage.row("late").revisions.latest("number")
    spec = newest.spec | {"sink": {"format": "noop"}}
    stage.row("late").revisions.create(
        number=2, kind="sql", spec=spec, author="ada", created_at=stage.now
    )
    assert lineage().downstream(["late"]) == ["daily"]
    stage.stop("late")
    stage.row("late").runs.update(outcome="STOPPED")
    assert lineage().downstream(["late"]) == []


def test_a_rotten_definition_takes_nobody_elses_lineage(stage: Stage) -> None:
    flow(stage)
    stage.query("rotten")
    QueryRevision.objects.filter(query__name="rotten").update(spec=["x"])
    found = lineage()
    assert found.downstream(["raw"]) == ["late", "daily"]
    assert found.unknown["rotten"] == ("Its definition or Spark's report cannot be read.",)


def test_the_number_of_database_queries_does_not_depend_on_that_of_queries(
    stage: Stage, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    flow(stage)
    with django_assert_num_queries(5):
        lineage()
    application = stage.application("many")
    rows = [Query(name=f"q{at}", application=application, created_at=stage.now) for at in range(60)]
    Query.objects.bulk_create(rows)
    spec = {"kind": "sql", "sources": [part("json", path="/data/late")], "sql": "x"}
    QueryRevision.objects.bulk_create(
        QueryRevision(
            query=row, number=1, kind="sql", spec=spec, author="ada", created_at=timezone.now()
        )
        for row in rows
    )
    with django_assert_num_queries(5):
        assert len(lineage().downstream(["late"])) == 61


@pytest.mark.parametrize("pattern", [r"\p{javaLowerCase}+", r"\Qflights\E"])
def test_a_pattern_that_only_java_can_read_leaves_the_others_their_lineage(
    stage: Stage, pattern: str
) -> None:
    flow(stage)
    stage.query("any", sources=[{"name": "flights", **kafka(subscribepattern=pattern)}])
    found = lineage()
    assert found.downstream(["raw"]) == ["late", "daily"]
    assert found.unknown == {
        "any": (
            f"Reads: Headgate cannot read the pattern {pattern!r}; "
            "only topics that Spark reports are known.",
        )
    }
