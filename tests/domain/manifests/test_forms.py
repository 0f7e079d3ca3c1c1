"""Manifests: their fields are those of the definitions, and each fault is told by its field."""

from typing import Any

import pytest

from queries.domain.definitions.spec import ApplicationSpec, PythonQuery, SqlQuery
from queries.domain.errors import Invalid
from queries.domain.manifests.forms import Kind, manifest_schema, parse_manifest
from queries.domain.states import Desired

SPEC: dict[str, Any] = {
    "kind": "sql",
    "sources": [{"name": "ticks", "format": "rate"}],
    "sql": "SELECT * FROM ticks",
    "sink": {"format": "noop"},
}


def manifest(kind: str = "Query", name: Any = "delays", spec: Any = None, **more: Any) -> Any:
    """Return a manifest as a file has it; `more` goes into its metadata, `desired` beside it."""
    beside = {key: more.pop(key) for key in ("desired",) if key in more}
    metadata = {"name": name, **more}
    given = SPEC if spec is None and kind == "Query" else spec or {}
    return {
        "apiVersion": "headgate/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": given,
        **beside,
    }


def faults(raw: Any) -> dict[str, str]:
    """Return the message of each field that a manifest is refused for."""
    with pytest.raises(Invalid) as refused:
        parse_manifest(raw)
    return {one.field: one.message for one in refused.value.problems}


def test_a_query_has_its_definition_and_what_stands_beside_it() -> None:
    spec = SPEC | {"checkpoint": "/c/delays"}
    raw = manifest(spec=spec, application="flights", labels={"a": "b"}, desired="RUNNING")
    found = parse_manifest(raw)
    assert found.key == (Kind.QUERY, "delays")
    assert (found.application, found.checkpoint) == ("flights", "/c/delays")
    assert (found.labels, found.desired) == ({"a": "b"}, Desired.RUNNING)
    assert set(found.spec) == {info.alias or name for name, info in SqlQuery.model_fields.items()}


def test_an_application_has_its_pools_by_name() -> None:
    pools = [{"name": "wide"}, {"name": "light", "weight": 2}]
    found = parse_manifest(manifest("Application", spec={"memory": "2g", "pools": pools}, team="d"))
    assert [pool.name for pool in found.pools] == ["light", "wide"]
    assert (found.spec["memory"], found.team) == ("2g", "d")
    assert set(found.spec) == set(ApplicationSpec.model_fields)
    bare = {key: held for key, held in manifest("Application").items() if key != "spec"}
    assert parse_manifest(bare).spec["memory"] == ApplicationSpec().memory


def test_an_application_that_runs_a_script_says_whether_it_is_to_run() -> None:
    spec = {"kind": "script", "script": {"file": "/code/job.py"}, "python_path": ["/code"]}
    assert parse_manifest(manifest("Application", spec=spec)).desired is None
    found = parse_manifest(manifest("Application", spec=spec, desired="STOPPED"))
    assert (found.spec["kind"], found.desired) == ("script", Desired.STOPPED)


def test_a_query_in_python() -> None:
    found = parse_manifest(manifest(spec={"kind": "python", "function": "a:b"}))
    assert set(found.spec) == set(PythonQuery.model_fields)


def test_an_alert_rule_has_no_name_in_its_spec() -> None:
    found = parse_manifest(manifest("AlertRule", "nights", {"channels": ["ops"]}))
    assert (found.kind, found.spec["channels"], found.labels) == (Kind.ALERT_RULE, ["ops"], {})
    assert "name" not in found.spec


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ("text", "manifest"),
        ({}, "kind"),
        (manifest("Pool"), "kind"),
        (manifest(spec={"kind": "sql"}), "spec.sources"),
        (manifest(name="Delays"), "metadata.name"),
        (manifest(labels={"A": "b"}), "metadata.labels.A"),
        (manifest("Application", name="Delays"), "metadata.name"),
        (manifest("Application", spec={"pools": [{"name": "a/b"}]}), "spec.pools.0.name"),
        (manifest("Application", spec={"pools": [{"name": "a"}] * 2}), "spec.pools.1.name"),
        (manifest("Application", desired="RUNNING"), "desired"),
        (manifest(spec=SPEC | {"pools": []}), "spec.pools"),
        (manifest("AlertRule", "?", {"channels": ["a"]}), "metadata.name"),
        (manifest("AlertRule", "a", {"channels": []}), "spec.channels"),
        (manifest("AlertRule", "a", {"channels": ["a"], "labels": {}}), "spec.labels"),
        (manifest(desired="FLYING"), "desired"),
    ],
)
def test_a_fault_is_told_by_its_field(raw: Any, field: str) -> None:
    assert field in faults(raw)


def test_other_errors_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("a defect")

    monkeypatch.setattr("queries.domain.manifests.forms.parse_labels", broken)
    with pytest.raises(RuntimeError):
        parse_manifest(manifest())


def test_the_schema_is_made_from_the_models() -> None:
    schema = manifest_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    text = str(schema)
    for name in (*ApplicationSpec.model_fields, "checkpoint", "pools", "escalate_to", "desired"):
        assert f"'{name}'" in text


def test_an_object_that_is_no_manifest_is_answered_with_where_manifests_come_from() -> None:
    for raw, exports in (({"name": "delays"}, True), (manifest("Topic"), False)):
        with pytest.raises(Invalid) as refused:
            parse_manifest(raw)
        [problem] = refused.value.problems
        assert problem.field == "kind"
        assert ("`headgate export`" in problem.way_out) is exports
