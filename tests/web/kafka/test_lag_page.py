"""Lag, the clock, what is gone and the ledger: on the query's page, the list and a failure's."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.alerts.forms import IncidentKind
from queries.domain.kafka.retention import Retention
from queries.domain.protocol import RunError
from queries.domain.states import LossKind
from queries.domain.system import SystemHealth
from queries.models.alerts import Incident
from queries.models.checkpoints import Loss, SourceLag
from queries.models.definitions import Query
from queries.models.history import Failure
from queries.services.alerts import incidents
from queries.services.kafka import go_on_after_loss as procedure
from queries.services.kafka import lag
from queries.views.kafka import draw_lag
from tests.conftest_brokers import Brokers, MakeQuery, brokers, make, said
from tests.scenarios.stage import Stage
from tests.web.browserless import Page

__all__ = ["brokers", "make"]

LOST = RunError(
    "",
    "org.apache.spark.sql.kafka010.KafkaIllegalStateException",
    "Some data may have been lost because they are not available in Kafka any more",
    "Could not read records in offset [100, 180) for topic partition flights-0",
)


@pytest.fixture(autouse=True)
def _allowed(settings: Any) -> None:
    settings.BROKER_HOSTS = ["*"]  # brokers of queries that no run has read from yet


@pytest.fixture
def delays(stage: Stage, make: MakeQuery, brokers: Brokers) -> Query:
    """A stopped query that is behind on partition 0, with an hour's retention."""
    query = make("delays")
    ten_ago = timezone.now() - timedelta(minutes=10)
    brokers.said["one:9092"] = said({0: (0, 5100), 1: (0, 100)}, written=ten_ago)
    lag.look_at_sources(now=timezone.now(), readers=brokers)
    query.refresh_from_db()
    return query


def test_each_partition_shows_its_lag_and_its_clock(
    client: Client, viewer: User, delays: Query
) -> None:
    client.force_login(viewer)
    page = Page(client, "/queries/delays/lag/")
    for words in (
        "flights",
        "retention: 1 h",
        "5,100",
        "5,000",
        "Partition 0 is skewed",
        "by its age",
    ):
        assert words in page.text, words
    assert "Will lose data in 49 min unless the query runs" in page.text
    assert "none known" in page.text
    drawn = dict(draw_lag(str(delays.pk), None, timezone.now()))
    assert set(drawn) == {f"sources-{delays.pk}", f"loss-totals-{delays.pk}"}
    assert "5,000" in drawn[f"sources-{delays.pk}"]
    assert not list(draw_lag("nobody", None, timezone.now()))


def test_lag_is_called_records_only_where_offsets_are_records(
    client: Client, viewer: User, delays: Query, brokers: Brokers
) -> None:
    client.force_login(viewer)
    assert "Records behind" in Page(client, "/queries/delays/lag/").text
    assert "5,000 records" in client.get("/queries/").content.decode()
    brokers.said["one:9092"] = said(
        {0: (0, 5100), 1: (0, 100)}, retention=Retention(ms=None, compacts=True)
    )
    lag.look_at_sources(now=timezone.now(), readers=brokers)
    page = Page(client, "/queries/delays/lag/").text
    assert "Offsets behind" in page
    assert "Records behind" not in page
    assert "5,000 offsets" in client.get("/queries/").content.decode()


def test_of_a_topic_that_may_not_be_asked_nothing_is_claimed(
    client: Client, viewer: User, make: MakeQuery, brokers: Brokers
) -> None:
    make("delays")
    brokers.said["one:9092"] = said({0: (0, 5100), 1: (0, 100)}, told=False)
    lag.look_at_sources(now=timezone.now(), readers=brokers)
    client.force_login(viewer)
    page = Page(client, "/queries/delays/lag/").text
    assert "retention: unknown" in page
    assert "Offsets behind" in page


def test_the_list_puts_what_is_at_risk_first(
    client: Client, viewer: User, stage: Stage, delays: Query
) -> None:
    stage.query("aaa-first-by-name")
    client.force_login(viewer)
    page = Page(client, "/queries/")
    assert page.text.rindex("delays") < page.text.rindex("aaa-first-by-name")
    assert "At risk" in page.text
    narrowed = client.get("/queries/?group=risk").content.decode()
    assert "/queries/delays/" in narrowed
    assert "/queries/aaa-first-by-name/" not in narrowed
    assert "At risk" in Page(client, "/").text


def test_a_query_of_other_sources_says_why_no_lag_is_known(
    client: Client, viewer: User, stage: Stage
) -> None:
    stage.query("ticks")
    client.force_login(viewer)
    assert "No lag data" in Page(client, "/queries/ticks/lag/").text


def test_a_source_that_is_not_reachable_is_named_on_the_page(
    client: Client, viewer: User, delays: Query
) -> None:
    Query.objects.update(
        source_reachable=False, source_unreachable_since=timezone.now(), desired="RUNNING"
    )
    SourceLag.objects.update(error="Connection refused")
    client.force_login(viewer)
    assert "Source not reachable since" in Page(client, "/queries/delays/").text
    page = Page(client, "/queries/delays/lag/").text
    assert "Connection refused" in page
    assert "from the last check" in page


@pytest.fixture
def failed(
    stage: Stage,
    delays: Query,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
) -> Failure:
    """The failure of a query that 80 offsets are lost from."""
    brokers.said["one:9092"] = said({0: (180, 5100), 1: (0, 100)})
    lag.look_at_sources(now=timezone.now(), readers=brokers)
    look = partial(lag.look_at_sources, readers=brokers)
    monkeypatch.setattr(procedure, "look_at_sources", look)
    stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", LOST)
    return Failure.objects.get()


def test_the_failure_names_what_is_gone_and_leads_on(
    client: Client, operator: User, failed: Failure
) -> None:
    client.force_login(operator)
    page = Page(client, f"/failures/{failed.pk}/")
    for words in ("Lost offsets", "80 offsets", "flights-0", "Skip lost data"):
        assert words in page.text, words
    confirm = Page(client, "/queries/delays/go-on/")
    assert "Skip 80 offsets?" in confirm.text
    assert "Type 80 to confirm" in " ".join(confirm.text.split())


def test_an_incident_on_records_that_are_gone_leads_on_before_the_query_fails(
    client: Client,
    operator: User,
    delays: Query,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incidents, "system_health", lambda now: SystemHealth(now, ()))
    client.force_login(operator)

    def page() -> str:
        lag.look_at_sources(now=timezone.now(), readers=brokers)
        incidents.watch_incidents(now=timezone.now())
        incident = Incident.objects.get()
        assert incident.kind == IncidentKind.AT_RISK_STOPPED
        return client.get(f"/alerts/{incident.uuid}/").content.decode()

    assert "/queries/delays/go-on/" not in page()  # nothing is gone yet
    brokers.said["one:9092"] = said({0: (180, 5100), 1: (0, 100)})
    gone = page()
    assert "/queries/delays/go-on/" in gone
    assert "skip the lost data there" in gone


def test_once_the_broker_has_forgotten_sparks_words_tell_it(
    client: Client, viewer: User, failed: Failure
) -> None:
    SourceLag.objects.all().delete()
    client.force_login(viewer)
    page = Page(client, f"/failures/{failed.pk}/")
    assert "at most 80 offsets" in page.text
    assert "the range that Spark could not read in full" in page.text
    assert "/queries/delays/go-on/" not in client.get(f"/failures/{failed.pk}/").content.decode()


@pytest.mark.guarantee("G-LOSS-2")
@pytest.mark.sql("queries.selectors.kafka.lag.recorded_after")
def test_an_accepted_loss_stays_what_was_lost_and_not_what_was_read(
    client: Client, viewer: User, delays: Query, brokers: Brokers, stage: Stage
) -> None:
    brokers.said["one:9092"] = said({0: (180, 5100), 1: (0, 100)})
    lag.look_at_sources(now=timezone.now(), readers=brokers)
    stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", replace(LOST, message=LOST.message.replace("180", "5100")))
    failure = Failure.objects.get()
    gone = {"from_offset": 100, "to_offset": 180, "offsets": 80, "kind": LossKind.RETENTION}
    later = failure.at + timedelta(minutes=2)
    Loss.objects.create(query=delays, source="flights", partition=0, noticed_at=later, **gone)
    SourceLag.objects.update(committed=5_100)  # it has gone on
    client.force_login(viewer)
    page = Page(client, f"/failures/{failure.pk}/").text
    assert "80 offsets, as recorded in the loss ledger" in page
    assert "5,000 offsets" not in page


def test_a_wrong_count_is_told_and_the_right_one_goes_on(
    client: Client, operator: User, failed: Failure
) -> None:
    client.force_login(operator)
    for typed in ("79", "eighty", ""):
        answer = client.post("/queries/delays/go-on/", {"typed": typed})
        assert answer.status_code == 409
        assert "80 offsets are lost" in answer.content.decode()
    answer = client.post("/queries/delays/go-on/", {"typed": "80"})
    assert answer.status_code == 302
    assert "/operations/" in answer["Location"]


def test_a_viewer_accepts_no_loss(client: Client, viewer: User, failed: Failure) -> None:
    client.force_login(viewer)
    assert client.post("/queries/delays/go-on/", {"typed": "80"}).status_code == 403


def test_the_ledger_stands_on_the_page(client: Client, viewer: User, delays: Query) -> None:
    now = timezone.now()
    common = {"query": delays, "noticed_at": now}
    Loss.objects.create(
        kind=LossKind.RETENTION,
        source="flights",
        partition=0,
        from_offset=100,
        to_offset=180,
        offsets=80,
        records=80,
        accepted_by="otto",
        accepted_at=now,
        **common,
    )
    Loss.objects.create(kind=LossKind.LATE, source="dedupe 0", day=now.date(), records=7, **common)
    Loss.objects.create(
        kind=LossKind.SKIPPED,
        source="flights",
        partition=1,
        from_offset=1,
        to_offset=4,
        offsets=3,
        **common,
    )
    client.force_login(viewer)
    page = Page(client, "/queries/delays/lag/").text
    for words in ("80 records", "7 records", "3 offsets", "otto", "unknown", "dedupe 0"):
        assert words in page, words


def test_a_wrong_entry_is_corrected_on_the_page(
    client: Client, viewer: User, operator: User, delays: Query
) -> None:
    now = timezone.now()
    loss = Loss.objects.create(
        query=delays, kind=LossKind.LATE, source="dedupe 0", records=7, noticed_at=now
    )
    at = f"/queries/delays/losses/{loss.pk}/correct/"
    client.force_login(viewer)
    assert at not in Page(client, "/queries/delays/lag/").text
    client.force_login(operator)
    assert at in client.get("/queries/delays/lag/").content.decode()
    assert "dedupe 0" in Page(client, at).text
    refused = client.post(at, {"reason": ""})
    assert (refused.status_code, "is empty" in refused.content.decode()) == (409, True)
    assert client.post(at, {"reason": "The counter was wrong."}).status_code == 302
    page = Page(client, "/queries/delays/lag/").text
    for words in ("Not lost", "by otto: The counter was wrong.", "none known"):
        assert words in page, words


@pytest.mark.parametrize(
    ("error_class", "text"),
    [
        ("HEADGATE_TOPIC_RECREATED", "Topic flights was deleted and recreated: the offsets"),
        ("KAFKA_DATA_LOSS.PARTITIONS_DELETED", "Partitions Set(flights-1) have been deleted."),
        ("", "Partition flights-0 offset was changed from 4000 to 0. Some data may have been lost"),
    ],
)
def test_where_nothing_can_be_skipped_the_failure_leads_to_a_reset_and_go_on_does_not_lead_back(
    client: Client,
    operator: User,
    stage: Stage,
    delays: Query,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    error_class: str,
    text: str,
) -> None:
    brokers.said["one:9092"] = said({0: (0, 5100)})
    look = partial(lag.look_at_sources, readers=brokers)
    monkeypatch.setattr(procedure, "look_at_sources", look)
    look(now=timezone.now())
    stage.start("delays")
    stage.ready("delays")
    stage.fail("delays", RunError(error_class, "KafkaIllegalStateException", text, text))
    client.force_login(operator)
    address = f"/failures/{Failure.objects.get().pk}/"
    page = Page(client, address).text
    assert "Reset the query to earliest" in page
    assert "Skip lost data" not in page
    assert "/queries/delays/reset/" in client.get(address).content.decode()
    answer = client.post("/queries/delays/go-on/", {"typed": "1"})
    assert answer.status_code == 409
    assert "Reset the query to earliest" in answer.content.decode()
