"""A list of many queries: paged, grouped and filtered by the database, at any size."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import DjangoAssertNumQueries

from listeners.models import Gap, Latest
from queries.domain.states import Desired, Phase, RunOutcome, Verdict
from queries.models.applications import Application, ApplicationRevision
from queries.models.definitions import Checkpoint, Query, QueryRevision
from queries.models.drivers import Driver, Run
from queries.selectors.supervision.query_filters import counts, input_rate, kinds, queries
from queries.services.system.health import forget
from queries.views.console.fragments import ROWS
from queries.views.supervision.charts import LANES_AT_MOST


@pytest.fixture
def vera(client: Client, viewer: User) -> Client:
    client.force_login(viewer)
    return client


def _queries(count: int, *, application: str = "many", **more: object) -> list[Query]:
    """Define queries named after their application, as the console would find them."""
    now = timezone.now()
    home = Application.objects.create(name=application, created_at=now)
    ApplicationRevision.objects.create(application=home, number=1, spec={}, created_at=now)
    rows = Query.objects.bulk_create(
        Query(name=f"{application}-{n:04}", application=home, created_at=now, **more)
        for n in range(count)
    )
    QueryRevision.objects.bulk_create(
        QueryRevision(query=row, number=1, kind="sql", spec={"kind": "sql"}, created_at=now)
        for row in rows
    )
    Checkpoint.objects.bulk_create(
        Checkpoint(query=row, location=f"file:///c/{row.name}", created_at=now) for row in rows
    )
    return rows


def _page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200
    return answer.content.decode()


def _names(html: str) -> list[str]:
    return re.findall(r'<tr id="row-\d+"[^>]*data-name="([^"]+)"', html)


def _sections(html: str) -> list[str]:
    return re.findall(r'scope="rowgroup">([^<]+)<', html)


def test_each_query_is_on_one_page_and_pages_say_which_they_show(vera: Client, db: None) -> None:
    rows = _queries(ROWS + 20)
    first, second = _page(vera, "/queries/"), _page(vera, "/queries/?page=2")
    assert _names(first) + _names(second) == [row.name for row in rows]
    assert f"1–{ROWS} of {ROWS + 20} queries" in first
    assert f"{ROWS + 1}–{ROWS + 20} of {ROWS + 20} queries" in second
    assert 'rel="prev"' not in first
    assert 'rel="next"' not in second


@pytest.mark.parametrize("number", ["0", "-1", "999", "x", "9" * 30])
def test_a_page_that_is_not_there_shows_one_that_is(vera: Client, db: None, number: str) -> None:
    _queries(3)
    assert len(_names(_page(vera, f"/queries/?page={number}"))) == 3


def test_what_needs_attention_is_on_the_first_page(vera: Client, db: None) -> None:
    rows = _queries(ROWS + 2)
    Query.objects.filter(pk=rows[-1].pk).update(phase=Phase.FAILED)
    Query.objects.filter(pk=rows[-2].pk).update(risk="Records will be deleted.")
    assert _names(_page(vera, "/queries/"))[:3] == [rows[-2].name, rows[-1].name, rows[0].name]
    assert _names(_page(vera, "/queries/?group=attention")) == [rows[-2].name, rows[-1].name]


def test_a_page_reads_as_much_of_many_queries_as_of_few(
    vera: Client, db: None, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    _queries(ROWS * 3)
    _page(vera, "/queries/")
    forget()  # the banner's parts are kept for some seconds
    with django_assert_max_num_queries(50) as few:  # five for the allowed paths of System
        _page(vera, "/queries/")
    _queries(ROWS * 6, application="more")
    forget()
    with django_assert_max_num_queries(len(few.captured_queries)):
        _page(vera, "/queries/")


def test_only_the_rows_of_the_page_are_asked_for_live(vera: Client, db: None) -> None:
    rows = _queries(ROWS + 1)
    found = re.search(r"queries:([0-9.]+)\.t[0-9]+", _page(vera, "/queries/?page=2"))
    assert found is not None
    assert found[1] == str(rows[-1].pk)


@pytest.mark.sql("queries.selectors.rows.label")
def test_queries_are_found_and_grouped_by_their_labels(vera: Client, db: None) -> None:
    _queries(2, application="a", labels={"team": "data"})
    _queries(1, application="b")
    Application.objects.filter(name="b").update(labels={"team": "ops"})
    _queries(1, application="c")
    html = _page(vera, "/queries/?by=team")
    assert _sections(html) == ["no team", "data", "ops"]
    assert _names(html) == ["c-0000", "a-0000", "a-0001", "b-0000"]
    assert _names(_page(vera, "/queries/?label=team%3Ddata")) == ["a-0000", "a-0001"]
    assert _names(_page(vera, "/queries/?label=team%3Dops")) == ["b-0000"]
    assert _names(_page(vera, "/queries/?label=team")) == ["a-0000", "a-0001", "b-0000"]
    assert _names(_page(vera, "/queries/?label=team%3D")) == ["c-0000"]
    assert "No matching queries" in _page(vera, "/queries/?label=x%22%27%25%3Dy")


@pytest.mark.sql(
    "queries.selectors.rows.label_names",
    "queries.selectors.rows.labelled",
)
def test_a_querys_own_label_comes_before_that_of_its_application(vera: Client, db: None) -> None:
    rows = _queries(2, application="a")
    Application.objects.update(labels={"team": "data"})
    Query.objects.filter(pk=rows[1].pk).update(labels={"team": "ops"})
    assert _names(_page(vera, "/queries/?label=team%3Dops")) == ["a-0001"]
    assert _names(_page(vera, "/queries/?label=team%3Ddata")) == ["a-0000"]


@pytest.mark.sql(
    "queries.views.supervision.query_list._ordered",
    "queries.selectors.supervision.query_filters.counts",
    "queries.selectors.access.teams",
)
def test_queries_are_grouped_by_application(vera: Client, db: None) -> None:
    _queries(1, application="b")
    _queries(2, application="a")
    html = _page(vera, "/queries/?by=application")
    assert _sections(html) == ["a", "b"]
    assert _names(html) == ["a-0000", "a-0001", "b-0000"]


def test_batches_that_went_missing_long_ago_in_another_driver_trouble_nobody(
    vera: Client, db: None
) -> None:
    (row,) = _queries(1)
    Gap.objects.create(
        kind="batch",
        driver=4711,
        query=row.pk,
        first=1,
        last=2,
        missing=2,
        noticed_at=timezone.now() - timedelta(days=3),
    )
    assert _names(_page(vera, "/queries/?group=attention")) == []


@pytest.mark.sql(
    "queries.views.supervision.charts.lanes",
    "queries.views.supervision.query_list._context",
    "queries.selectors.supervision.query_filters.kinds",
    "queries.selectors.supervision.query_filters.input_rate",
)
def test_the_overview_draws_those_that_failed_and_says_how_many_are_left_out(
    vera: Client, db: None
) -> None:
    rows = _queries(LANES_AT_MOST + 5)
    home = rows[0].application
    now = timezone.now()
    driver = Driver.objects.create(
        application=home,
        application_revision=home.revisions.get(),
        epoch=1,
        host="here",
        directory="/d",
        created_at=now,
        state_since=now,
    )
    Run.objects.bulk_create(
        Run(
            query=row,
            driver=driver,
            revision=row.revisions.get(),
            checkpoint=row.checkpoints.get(),
            epoch=number,
            generation=1,
            cause="ASKED_START",
            created_at=now - timedelta(minutes=30),
            ended_at=now - timedelta(minutes=10),
            outcome=RunOutcome.FAILED if row == rows[-1] else RunOutcome.STOPPED,
        )
        for number, row in enumerate(rows)
    )
    html = _page(vera, "/")
    lanes = re.findall(r'<div class="lane"><a href="[^"]+">([^<]+)<', html)
    assert lanes == [row.name for row in (*rows[: LANES_AT_MOST - 1], rows[-1])]
    assert "5 more queries ran" in html


def test_lists_of_applications_and_checkpoints_are_paged_too(vera: Client, db: None) -> None:
    _queries(ROWS + 1)
    Application.objects.bulk_create(
        Application(name=f"app-{n:03}", created_at=timezone.now()) for n in range(ROWS)
    )
    for address, what in (("/applications/", "applications"), ("/checkpoints/", "checkpoints")):
        assert f"1–{ROWS} of {ROWS + 1} {what}" in _page(vera, address)
        assert f"{ROWS + 1}–{ROWS + 1} of {ROWS + 1} {what}" in _page(vera, f"{address}?page=2")


@pytest.mark.sql(
    "queries.views.supervision.applications.application_list",
)
def test_applications_are_found_by_their_labels(vera: Client, db: None) -> None:
    _queries(1, application="a")
    _queries(1, application="b")
    Application.objects.filter(name="b").update(labels={"team": "ops"})
    html = _page(vera, "/applications/?label=team%3Dops")
    assert re.findall(r'data-row-link href="/applications/([^/]+)/"', html) == ["b"]


def test_the_overview_sums_what_is_read_and_leaves_out_what_is_no_number(
    vera: Client, db: None
) -> None:
    rows = _queries(4, phase=Phase.RUNNING, desired=Desired.RUNNING)
    for row, told in zip(rows, (200.5, "NaN", "Infinity", 100), strict=True):
        Latest.objects.create(
            query=row.pk,
            driver=1,
            epoch=1,
            seq=row.pk,
            run=1,
            at=timezone.now(),
            progress={"inputRowsPerSecond": told},
        )
    assert input_rate() == 300.5
    Query.objects.filter(pk=rows[0].pk).update(verdict=Verdict.IDLE)  # it reads nothing now
    assert input_rate() == 100


def test_a_query_counts_once_on_the_overview_by_its_verdict_or_its_phase(db: None) -> None:
    rows = _queries(4, phase=Phase.RUNNING, desired=Desired.RUNNING, verdict=Verdict.LAGGING)
    Query.objects.filter(pk=rows[0].pk).update(verdict="")
    Query.objects.filter(pk=rows[1].pk).update(phase=Phase.FAILED)  # noted before it failed
    assert kinds() == {"LAGGING": 2, "RUNNING": 1, "FAILED": 1}
    assert counts(queries(now=timezone.now())) == {
        "all": 4,
        "attention": 3,
        "risk": 0,
        "running": 3,
        "changing": 1,
        "stopped": 0,
    }
