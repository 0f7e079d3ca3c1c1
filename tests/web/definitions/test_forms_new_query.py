"""A query is defined on a page, by fields or as JSON, with and without mistakes."""

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.models.definitions import Query, QueryRevision
from tests.web.browserless import Page

SQL = "SELECT carrier, dep_delay\nFROM flights\nWHERE dep_delay > 60"


@pytest.fixture
def form(client: Client, author: User) -> Page:
    client.force_login(author)
    return Page(client, "/new/query/", form="definition")


def _fill(**more: str) -> dict[str, str]:
    return {
        "name": "long-delays",
        "sources__0__name": "flights",
        "sources__0__format": "json",
        "sources__0__options": "path = /data/flights\nmaxFilesPerTrigger = 20",
        "sources__0__ddl_schema": "carrier STRING, dep_delay DOUBLE",
        "sql": SQL,
        "sink_format": "parquet",
        "sink_options": "path = /data/long",
        "trigger_interval": "5 seconds",
        **more,
    }


def test_a_filled_form_defines_a_query(form: Page) -> None:
    after = form.press("create", **_fill())
    query = Query.objects.get(name="long-delays")
    spec = query.revisions.get(number=1).spec
    assert spec["sql"] == SQL
    assert spec["sources"][0]["options"] == {"path": "/data/flights", "maxFilesPerTrigger": "20"}
    assert spec["sources"][0]["schema"] == "carrier STRING, dep_delay DOUBLE"
    assert spec["trigger"] == {"kind": "processing_time", "interval": "5 seconds"}
    assert query.desired == "STOPPED"
    assert after.address == "/queries/long-delays/"
    assert "long-delays was created" in after.text


def test_create_and_start_wants_it_running(form: Page) -> None:
    form.press("create-start", **_fill())
    assert Query.objects.get(name="long-delays").desired == "RUNNING"


def test_a_mistake_is_told_at_its_field_and_nothing_typed_is_lost(form: Page) -> None:
    typed = _fill(name="Long Delays", sql="DROP TABLE flights", trigger_interval="often")
    after = form.press("create", **typed)
    assert after.status == 422
    assert not Query.objects.exists()
    assert {"name", "sql", "trigger_interval"} <= after.invalid
    assert "not a valid name" in after.error_at("name")
    assert "not a query" in after.error_at("sql")
    assert "not a valid interval" in after.error_at("trigger_interval")
    assert {name.replace("__", "-"): value for name, value in typed.items()}.items() <= (
        after.fields.items()
    )


def test_an_option_line_without_an_equals_sign_is_named_by_its_number(form: Page) -> None:
    after = form.press("create", **_fill(sources__0__options="path = /data\nnonsense"))
    assert "Line 2" in after.error_at("sources__0__options")
    assert "nonsense" in after.error_at("sources__0__options")


def test_a_problem_of_a_source_stands_in_its_row_though_an_empty_row_is_above(form: Page) -> None:
    more = form.press("add-sources", **_fill())
    moved = {
        name.replace("-0-", "-1-"): value for name, value in more.fields.items() if "-0-" in name
    }
    blank = dict.fromkeys((name for name in more.fields if "-0-" in name), "")
    more.fields.update({**blank, **moved, "sources-1-format": "no-such-format"})
    after = more.press("create")
    assert "no-such-format" in after.error_at("sources__1__format")
    assert not after.error_at("sources__0__format")


def test_adding_and_removing_rows_keeps_what_was_typed(form: Page) -> None:
    two = form.press("add-sources", **_fill())
    assert two.fields["sources-TOTAL_FORMS"] == "2"
    assert two.fields["sources-0-name"] == "flights"
    assert two.fields["sql"] == SQL
    assert not two.invalid
    tables = two.press("add-tables", sources__1__name="weather")
    assert tables.fields["tables-0-name"] == ""
    fewer = tables.press("remove-sources-0")
    assert fewer.fields["sources-TOTAL_FORMS"] == "1"
    assert fewer.fields["sources-0-name"] == "weather"


def test_the_form_becomes_the_apis_json_and_goes_back(form: Page) -> None:
    shown = form.press("to-json", **_fill(conf="spark.sql.shuffle.partitions = 4"))
    body = json.loads(shown.fields["json"])
    assert body["name"] == "long-delays"
    assert body["spec"]["conf"] == {"spark.sql.shuffle.partitions": "4"}
    back = shown.press("to-form")
    assert back.fields["sources-0-name"] == "flights"
    assert back.fields["conf"] == "spark.sql.shuffle.partitions = 4"


def test_pasted_json_defines_a_query(form: Page) -> None:
    shown = form.press("to-json", **_fill())
    body = json.loads(shown.fields["json"]) | {"name": "pasted"}
    shown.press("create", json=json.dumps(body))
    assert Query.objects.get().name == "pasted"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "line 1, column 2"),
        ("[]", "is not a query definition"),
        ('{"name": "x", "spec": {"kind": "sql"}}', "sources"),
    ],
)
def test_json_that_will_not_do_is_kept_and_told(form: Page, text: str, told: str) -> None:
    after = form.press("to-json").press("create", json=text)
    assert after.status == 422
    assert told in after.by_id["problems"]
    assert after.fields["json"] == text


def test_a_python_query_needs_no_source_and_may_need_no_sink(form: Page) -> None:
    after = form.press(
        "create", name="hourly", kind="python", function="no_such_module:build", params="{nonsense"
    )
    assert "Not JSON" in after.error_at("params")
    after = after.press("create", params='{"table": "hours"}')
    assert "no_such_module" in after.error_at("function")
    assert not after.error_at("sink_format")


def test_an_unknown_application_is_told_at_its_field(form: Page) -> None:
    after = form.press("create", **_fill(home="shared", application="nowhere"))
    assert "nowhere" in after.error_at("application")


def test_a_problem_of_its_own_driver_stands_at_the_drivers_field(form: Page) -> None:
    after = form.press("create", **_fill(own__memory="lots", own__conf="spark.jars = x.jar"))
    assert "lots" in after.error_at("own__memory")
    assert "spark.jars" in after.error_at("own__conf")


def test_a_copy_starts_from_another_query(form: Page, client: Client) -> None:
    form.press("create", **_fill())
    copy = Page(client, "/new/query/?copy=long-delays", form="definition")
    assert copy.fields["name"] == "long-delays-copy"
    assert copy.fields["sql"] == SQL


def test_a_sql_query_keeps_the_defaults_of_its_parameters(form: Page) -> None:
    fields = _fill(
        **{"sql": "SELECT value FROM flights WHERE value > :low", "params": '{"low": 3}'}
    )
    form.press("create", **fields)
    [revision] = QueryRevision.objects.all()
    assert revision.spec["params"] == {"low": 3}
