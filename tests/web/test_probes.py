"""Pages of preflights and state inspections: asked for where one edits, read where one follows."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from queries.domain.kafka.offsets import OffsetRange
from queries.domain.probes.questions import BatchRead, ProbeResult
from queries.domain.sparks import Written, as_json
from queries.domain.states import OperationOutcome, Verb
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.services.definitions import catalog
from queries.services.probes import inspections
from tests.launchers.in_memory import InMemoryLauncher
from tests.web.browserless import Page

SPEC = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate", "options": {"rowsPerSecond": "5"}}],
    "sql": "SELECT value FROM ticks",
    "sink": {"format": "noop"},
    "trigger": {"kind": "processing_time", "interval": "5 seconds"},
}
JUDGED: dict[str, Any] = {
    "verdict": "differs",
    "tries": [
        {
            "attempt": "replay",
            "label": "The newest batch of the checkpoint, executed again",
            "end": "passed",
            "batch": 41,
            "rows": 1200,
            "ms": 640,
        }
    ],
    "differences": [{"what": "grouping key", "old": "carrier", "new": "origin"}],
    "pinned": [{"what": "spark.sql.shuffle.partitions", "old": "4", "new": "8"}],
    "not_tried": ["writing to Kafka: its topic and permissions; the rows were discarded"],
}
STATE = {
    "operators": [],
    "operator": 0,
    "rows": 2,
    "bytes": 250,
    "partitions": [{"partition": 0, "rows": 2, "bytes": 250}],
    "largest": [{"key": '{"carrier":"WN"}', "rows": 1, "bytes": 125}],
    "frequent": [{"column": "carrier", "values": 2, "top": [{"value": "WN", "rows": 1}]}],
    "sample": [{"partition": 0, "key": '{"carrier":"WN"}', "value": '{"sum":12.5}'}],
}


@pytest.fixture
def ticks(author: User) -> Query:
    return catalog.create_query(name="ticks", spec=SPEC, actor="aude", now=timezone.now())


def _ended(query: Query, verb: Verb, **fields: Any) -> Operation:
    now = timezone.now()
    values: dict[str, Any] = {"outcome": OperationOutcome.DONE, **fields}
    return Operation.objects.create(
        verb=verb,
        query=query,
        application=query.application,
        generation=0,
        actor="aude",
        created_at=now,
        deadline=now + timedelta(minutes=5),
        ended_at=now,
        steps=[{"name": "Test the definition", "state": "DONE", "at": None, "detail": ""}],
        **values,
    )


def test_what_is_typed_can_be_tried_before_it_is_saved(
    client: Client, author: User, ticks: Query
) -> None:
    client.force_login(author)
    form = Page(client, "/queries/ticks/edit/", form="definition")
    after = form.press("preflight", sql="SELECT value * 2 AS twice FROM ticks")
    operation = Operation.objects.get(verb=Verb.PREFLIGHT)
    assert "twice" in operation.arguments["spec"]["sql"]
    assert operation.arguments["revision"] is None
    assert ticks.revisions.count() == 1
    assert "Launch a probe driver" in after.text
    again = Page(client, f"/queries/ticks/edit/?tried={operation.uuid}", form="definition")
    assert "value * 2 AS twice" in again.fields["sql"]
    plain = Page(client, "/queries/ticks/edit/?tried=nonsense", form="definition")
    assert "twice" not in plain.fields["sql"]


def test_a_fault_is_shown_at_its_field_and_nothing_is_tried(
    client: Client, author: User, ticks: Query
) -> None:
    client.force_login(author)
    form = Page(client, "/queries/ticks/edit/", form="definition")
    form.press("preflight", sql="DROP TABLE ticks")
    assert not Operation.objects.exists()


def test_an_operator_may_try_the_newest_revision(
    client: Client, operator: User, ticks: Query
) -> None:
    client.force_login(operator)
    answer = client.post("/queries/ticks/preflight/")
    operation = Operation.objects.get()
    assert answer["Location"] == f"/operations/{operation.uuid}/"
    assert operation.arguments["revision"] == 1
    assert "Run preflight" in client.get("/queries/ticks/definition/").content.decode()


@pytest.fixture
def sparks(settings: Any, tmp_path: Path) -> None:
    """Let Spark 4.2 be installed on this host."""
    settings.SPARKS_DIR = tmp_path / "sparks"
    (settings.SPARKS_DIR / "4.2" / "pyspark").mkdir(parents=True)


def _upgraded(query: Query, **changes: Any) -> Operation:
    told = {**as_json(Written(), Written(), "4.2", "4.3"), "plan": ["aggregation"] * 2, **changes}
    return _ended(
        query,
        Verb.PREFLIGHT,
        arguments={"spec": SPEC, "application_spec": {"spark": "4.2"}},
        result={"preflight": {**JUDGED, "spark": told}},
    )


@pytest.mark.sql(
    "queries.selectors.definitions.sparks.spark_rows",
    "queries.selectors.definitions.sparks._row",
)
@pytest.mark.usefixtures("sparks")
def test_another_spark_is_tried_for_all_queries_then_saved_with_one_click(
    client: Client, author: User, ticks: Query
) -> None:
    client.force_login(author)
    page = client.get("/applications/ticks/spark/?to=4.2").content.decode()
    assert "Go back to Spark 4.2 and restart" in page
    assert "no batch has run" in page
    client.post("/applications/ticks/spark/", {"to": "4.2", "do": "try"})
    operation = Operation.objects.get(verb=Verb.PREFLIGHT)
    assert operation.arguments["application_spec"]["spark"] == "4.2"
    assert ticks.application.revisions.count() == 1, "nothing is saved by a trial"
    assert (
        f"/operations/{operation.uuid}/"
        in client.get("/applications/ticks/spark/?to=4.2").content.decode()
    )
    client.post("/applications/ticks/spark/", {"to": "4.2", "do": "change", "base": "1"})
    assert ticks.application.revisions.get(number=2).spec["spark"] == "4.2"
    stale = client.post("/applications/ticks/spark/", {"to": "4.3", "do": "change", "base": "1"})
    assert stale.status_code == 409


@pytest.mark.usefixtures("sparks")
def test_the_page_asks_for_a_remote_checkpoint_and_tries_no_query_of_a_script(
    client: Client, author: User, ticks: Query, asked_to_read: list[int]
) -> None:
    Query.objects.update(identity="name:ticks")
    ticks.checkpoints.update(location="s3a://lake/ticks")
    client.force_login(author)
    page = client.get("/applications/ticks/spark/?to=4.2").content.decode()
    assert "this host has not read the checkpoint" in page
    assert asked_to_read == [ticks.checkpoints.get().pk]
    assert "not possible: a script starts the query" in page
    assert "Run preflights" not in page


@pytest.fixture
def asked_to_read(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> list[int]:
    """Return the checkpoints that the worker is asked to read, instead of a worker."""
    settings.MIRRORS_DIR = tmp_path / "mirrors"
    asked: list[int] = []
    monkeypatch.setattr("queries.services.checkpoints.remote.read_checkpoint_soon", asked.append)
    return asked


def test_a_spark_that_is_not_installed_is_named_with_its_command(
    client: Client, author: User, ticks: Query, settings: Any, tmp_path: Path
) -> None:
    settings.SPARKS_DIR = tmp_path
    client.force_login(author)
    assert "make spark ARGS=4.1" in client.get("/applications/ticks/spark/?to=4.1").content.decode()
    refused = client.post("/applications/ticks/spark/", {"to": "4.1", "do": "change"})
    assert refused.status_code == 422
    assert "is not installed on this host" in refused.content.decode()
    plain = client.get("/applications/ticks/spark/?to=9.9").content.decode()
    assert "Spark 4.2…" in plain
    assert "and restart" not in plain


@pytest.mark.usefixtures("sparks")
def test_no_preflight_is_offered_for_a_query_that_a_script_starts(
    client: Client, author: User, ticks: Query
) -> None:
    Query.objects.filter(pk=ticks.pk).update(identity="ticks")
    client.force_login(author)
    page = Page(client, "/applications/ticks/spark/?to=4.2")
    assert "not possible: a script starts the query" in page.text
    refused = client.post("/applications/ticks/spark/", {"to": "4.2", "do": "try"})
    assert refused.status_code == 409
    assert "queries that a script starts cannot be tried" in refused.content.decode()


def test_the_page_of_a_change_to_3_5_says_that_results_may_differ(
    client: Client, author: User, ticks: Query
) -> None:
    client.force_login(author)
    page = Page(client, "/applications/ticks/spark/?to=3.5")
    assert "To keep these errors, set spark.sql.ansi.enabled to true" in page.text
    assert "spark.sql.ansi.enabled" not in Page(client, "/applications/ticks/spark/?to=4.0").text
    told = {**as_json(Written(), Written(), "3.5", "4.3"), "plan": None}
    done = _ended(
        ticks,
        Verb.PREFLIGHT,
        arguments={"spec": SPEC, "application_spec": {"spark": "3.5"}},
        result={"preflight": {**JUDGED, "spark": told}},
    )
    assert "Spark 3.5 continues with NULL" in Page(client, f"/operations/{done.uuid}/").text


@pytest.mark.sql("queries.views.probes._preflight")
def test_the_page_of_a_preflight_with_another_spark_says_whether_there_is_a_way_back(
    client: Client, author: User, ticks: Query
) -> None:
    client.force_login(author)
    page = client.get(f"/operations/{_upgraded(ticks).uuid}/").content.decode()
    assert "Spark 4.3 → 4.2" in page
    assert "Rollback possible" in page
    assert "The same stateful operators: aggregation." in page
    assert "Change ticks to Spark 4.2 and restart" in page
    lost = _upgraded(ticks, no_way_back="Spark 4.3 cannot continue this checkpoint: so.", plan=None)
    page = client.get(f"/operations/{lost.uuid}/").content.decode()
    assert "No rollback" in page
    assert "Not compared: the plan of Spark 4.3 is not known." in page


def test_its_page_names_what_spark_takes_in_silence(
    client: Client, viewer: User, ticks: Query
) -> None:
    operation = _ended(
        ticks, Verb.PREFLIGHT, arguments={"spec": SPEC}, result={"preflight": JUDGED}
    )
    client.force_login(viewer)
    page = Page(client, f"/operations/{operation.uuid}/")
    for said in (
        "Accepted by Spark, but the state differs",
        "Spark will not object, but the existing state was computed by the old definition",
        "Grouping key",
        "spark.sql.shuffle.partitions",
        "Writing to Kafka",
        "1,200 rows",
        "an unsaved definition",
    ):
        assert said in page.text, said
    assert "SELECT value" not in page.text  # the whole definition is no line of its page


def test_its_page_says_what_spark_refused_and_what_to_do(
    client: Client, viewer: User, ticks: Query
) -> None:
    refused = {
        **JUDGED["tries"][0],
        "end": "failed",
        "title": "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE: keys differ",
        "meaning": "Another form made the state.",
        "way_out": "Start on a new checkpoint.",
        "category": "checkpoint incompatible",
        "root_cause": "all of it",
    }
    judged = {**JUDGED, "verdict": "failed", "tries": [refused]}
    operation = _ended(
        ticks,
        Verb.PREFLIGHT,
        arguments={"spec": SPEC, "revision": 1},
        result={"preflight": judged},
        outcome=OperationOutcome.FAILED,
    )
    client.force_login(viewer)
    page = Page(client, f"/operations/{operation.uuid}/")
    for said in ("Preflight failed", "KEY_SCHEMA", "Start on a new checkpoint", "all of it"):
        assert said in page.text, said


@pytest.fixture
def probed(ticks: Query, monkeypatch: pytest.MonkeyPatch) -> Operation:
    """Return a state inspection that has ended, its rows in a probe's folder."""
    result = {name: STATE[name] for name in ("operator", "rows", "bytes", "partitions")}
    operation = _ended(
        ticks, Verb.XRAY, arguments={"operator": 0, "private_key": "WN"}, result=result
    )
    operation.host = settings.HEADGATE_HOST  # it stands for the probe, whose rows are here
    operation.save()
    found = {operation: ProbeResult("Reading the state", done=True, state=STATE)}
    probing = "queries.services.probes.probe_steps."
    monkeypatch.setattr(probing + "probe_of", lambda of: of if of in found else None)
    monkeypatch.setattr(probing + "read_result", lambda driver, *, launcher: found[driver])
    return operation


def test_rows_of_state_are_shown_to_authors_alone(
    client: Client, author: User, operator: User, probed: Operation
) -> None:
    address = f"/queries/ticks/x-ray/{probed.uuid}/"
    client.force_login(operator)
    assert client.get(address).status_code == 403
    page = Page(client, f"/operations/{probed.uuid}/")
    assert "State inspection of ticks" in page.text
    assert "2 groups" in page.text
    assert "WN" not in page.text
    client.force_login(author)
    page = Page(client, address)
    for said in ("WN", "12.5", "carrier", "Largest groups"):
        assert said in page.text, said
    assert inspections.rows_of(probed, launcher=InMemoryLauncher(), now=timezone.now())


def test_rows_of_state_are_gone_after_an_hour(
    client: Client, author: User, probed: Operation
) -> None:
    Operation.objects.update(ended_at=timezone.now() - timedelta(hours=2))
    client.force_login(author)
    assert "stored for one hour" in Page(client, f"/queries/ticks/x-ray/{probed.uuid}/").text
    assert "have been deleted" in Page(client, f"/operations/{probed.uuid}/").text
    assert client.get(f"/queries/other/x-ray/{probed.uuid}/").status_code == 404


def test_an_x_ray_is_asked_for_on_a_page(client: Client, author: User, ticks: Query) -> None:
    client.force_login(author)
    page = Page(client, "/queries/ticks/x-ray/")
    assert "personal data" in page.text
    bad = client.post("/queries/ticks/x-ray/", {"rows": "100000"})
    assert bad.status_code == 422
    answer = client.post("/queries/ticks/x-ray/", {"operator": "1", "contains": "WN", "rows": "9"})
    operation = Operation.objects.get()
    assert answer["Location"] == f"/operations/{operation.uuid}/"
    assert operation.arguments == {
        "operator": 1,
        "rows": 9,
        "snapshot": None,
        "private_key": "WN",
    }
    shown = Page(client, f"/operations/{operation.uuid}/")
    assert "WN" not in shown.text


RECORDS: dict[str, Any] = {
    "sources": [
        {
            "source": "ticks",
            "looked_at": 42,
            "whole": True,
            "first": 3,
            "records": [{"record": 3, "text": '{"carrier": "WN", "delay": 0}'}],
        }
    ],
    "searched": True,
    "failing": {"source": "ticks", "record": 3, "error": "[DIVIDE_BY_ZERO] Division by zero."},
    "hot": {
        "problem": "",
        "keys": [{"text": '{"key1": "AA"}', "rows": 92}, {"text": '{"key1": "B6"}', "rows": 8}],
        "rows": 100,
        "part": 0.25,
    },
}


@pytest.fixture
def looked(ticks: Query, monkeypatch: pytest.MonkeyPatch) -> Operation:
    """Return a look at a batch's records that has ended."""
    result = {
        "looked_at": {"ticks": 42},
        "searched": True,
        "failing": {"source": "ticks", "record": 3},
    }
    operation = _ended(ticks, Verb.RECORDS, arguments={"batch": 7, "rows": 50}, result=result)
    operation.host = settings.HEADGATE_HOST
    operation.save()
    found = ProbeResult("Reading", done=True, records=RECORDS)
    probing = "queries.services.probes.probe_steps."
    monkeypatch.setattr(probing + "probe_of", lambda of: of)
    monkeypatch.setattr(probing + "read_result", lambda driver, *, launcher: found)
    return operation


def test_records_are_shown_to_authors_alone_and_the_failing_one_is_marked(
    client: Client, author: User, operator: User, looked: Operation
) -> None:
    address = f"/queries/ticks/records/{looked.uuid}/"
    client.force_login(operator)
    assert client.get(address).status_code == 403
    told = Page(client, f"/operations/{looked.uuid}/").text
    assert "The SQL fails on record 3 of source ticks." in told
    assert "WN" not in told
    client.force_login(author)
    shown = Page(client, address).text
    for said in ("DIVIDE_BY_ZERO", "WN", "3 fails", "1 of 42", "AA", "92%", "sample of 100 rows"):
        assert said in shown, said
    assert client.get(f"/queries/other/records/{looked.uuid}/").status_code == 404
    body = client.get(f"/api/v1{address}").json()
    assert body["failing"]["record"] == 3
    assert body["hot"]["keys"][0]["rows"] == 92


def test_records_are_gone_after_an_hour(client: Client, author: User, looked: Operation) -> None:
    Operation.objects.update(ended_at=timezone.now() - timedelta(hours=2))
    client.force_login(author)
    address = f"/queries/ticks/records/{looked.uuid}/"
    assert "Records not available" in Page(client, address).text
    assert "have been deleted" in Page(client, f"/operations/{looked.uuid}/").text
    assert client.get(f"/api/v1{address}").status_code == 404


def test_a_look_at_records_is_for_authors_and_names_its_batch(
    client: Client, author: User, operator: User, ticks: Query
) -> None:
    address = "/api/v1/queries/ticks/records/"
    client.force_login(operator)
    assert client.post("/queries/ticks/records/", {"batch": "7"}).status_code == 403
    client.force_login(author)
    answer = client.post("/queries/ticks/records/", {"batch": "7"})
    operation = Operation.objects.get()
    assert answer["Location"] == f"/operations/{operation.uuid}/"
    assert operation.arguments == {"batch": 7, "rows": 50}
    Operation.objects.all().delete()
    bad = client.post(address, {"batch": 1, "rows": 9999}, content_type="application/json")
    assert bad.status_code == 422
    page = client.post("/queries/ticks/records/", {"batch": "²"})
    assert (page.status_code, 'name="batch" value="²"' in page.content.decode()) == (422, True)
    assert not Operation.objects.exists()


def test_what_a_batch_read_is_told_by_the_definitions_sources() -> None:
    spec = {
        "sources": [
            {"name": "a", "format": "json", "options": {"path": "/data/a"}},
            {"name": "b", "format": "kafka", "options": {"subscribe": "in"}},
            {"name": "c", "format": "rate", "options": {}},
            {"name": "d", "format": "json", "options": {"path": "relative"}},
        ]
    }
    ranges = [
        OffsetRange("1", "in", 0, 5, 9),
        OffsetRange("1", "in", 1, None, 4),
        OffsetRange("1", "in", 2, None, 3),
    ]
    files = ["file:///data/a/one.json", "file:///elsewhere/x.json"]
    reads = inspections.reads_of(spec, ranges, files, began={"1": {"in": {"1": 2}}})
    assert reads == [
        BatchRead("b", (), {"in": {"0": 5, "1": 2, "2": -2}}, {"in": {"0": 9, "1": 4, "2": 3}}),
        BatchRead("a", ("file:///data/a/one.json",)),
    ]
