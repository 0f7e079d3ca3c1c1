"""What a changed field takes is declared on the model, once, and everything derives from it."""

from typing import Any

import pytest
from pydantic import BaseModel

from queries.domain.definitions.parsing import application_changes, query_changes
from queries.domain.definitions.spec import (
    ApplicationSpec,
    Effect,
    PythonQuery,
    SqlQuery,
    changed_fields,
    declared,
    strongest,
)
from queries.domain.probes.preflight import digest

QUERY: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate"}],
    "sql": "SELECT value FROM ticks",
    "sink": {"format": "noop"},
}


@pytest.mark.parametrize("model", [SqlQuery, PythonQuery, ApplicationSpec])
def test_every_field_declares_its_effect(model: type[BaseModel]) -> None:
    assert declared(model).keys() == {
        field.alias or name for name, field in model.model_fields.items()
    }


def test_a_field_without_an_effect_is_a_mistake_of_the_model() -> None:
    class Careless(BaseModel):
        name: str = ""

    with pytest.raises(KeyError, match=r"Careless\.name declares 0 effects"):
        declared(Careless)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, {}),
        ({"conf": {}}, {}),  # as the default
        ({"description": "Every second."}, {"description": Effect.NONE}),
        ({"sql": "SELECT 1"}, {"sql": Effect.QUERY}),
        ({"trigger": {"kind": "once"}}, {"trigger": Effect.QUERY}),
        ({"conf": {"spark.sql.ansi.enabled": "false"}}, None),
        ({"kind": "python"}, {"kind": Effect.QUERY}),
        ({"sources": 7}, {"spec": Effect.QUERY}),  # it cannot be read any more
    ],
)
def test_what_a_change_of_a_query_takes(
    changes: dict[str, Any], found: dict[str, Effect] | None
) -> None:
    expected = {"conf.spark.sql.ansi.enabled": Effect.QUERY} if found is None else found
    assert query_changes(QUERY, {**QUERY, **changes}) == expected


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, Effect.NONE),
        ({"description": "For the tower."}, Effect.NONE),
        ({"policy": {"base_delay_s": 9}}, Effect.NONE),
        ({"require_preflight": True}, Effect.NONE),
        ({"memory": "2g", "description": "More."}, Effect.DRIVER),
        ({"memory": []}, Effect.DRIVER),
    ],
)
def test_what_a_change_of_an_application_takes(changes: dict[str, Any], found: Effect) -> None:
    assert strongest(application_changes({}, changes)) is found


def test_a_form_that_cannot_be_read_does_not_differ_from_itself() -> None:
    assert query_changes({"sql": 7}, {"sql": 7}) == {}
    assert application_changes({"memory": []}, {"memory": []}) == {}


def test_what_a_checkpoint_pins_takes_a_new_one() -> None:
    key = "spark.sql.shuffle.partitions"
    same = {"spark.sql.caseSensitive": "true"}
    conf = {key: "8", "spark.sql.ansi.enabled": "true", **same}
    found = changed_fields(ApplicationSpec, {"conf": same}, {"conf": conf})
    assert found == {
        f"conf.{key}": Effect.CHECKPOINT,
        "conf.spark.sql.ansi.enabled": Effect.DRIVER,
    }
    assert strongest(found) is Effect.CHECKPOINT
    assert [one.words for one in Effect] == [
        "none",
        "query restart",
        "driver restart",
        "new checkpoint",
    ]


def test_a_preflight_is_named_by_the_fields_that_spark_sees() -> None:
    assert digest(QUERY) == digest({**QUERY, "description": "Every second."})
    assert digest(QUERY) != digest({**QUERY, "pool": "heavy"})
