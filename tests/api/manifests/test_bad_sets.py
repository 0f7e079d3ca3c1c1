"""Sets with faults: each is told by field, value and way out, and not one row is written."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.api.conftest import SPEC, client_of
from tests.api.faults import check_told, definitions
from tests.api.manifests.conftest import application, body, query
from tests.conftest import person

pytestmark = pytest.mark.django_db

HEAD = {"apiVersion": "headgate/v1", "kind": "Query", "metadata": {"name": "bad"}}


def of_spec(**changes: Any) -> dict[str, Any]:
    """Return the manifest of a query with other fields in its spec."""
    return query("bad", spec=changes)


def without(name: str) -> dict[str, Any]:
    """Return the manifest of a query that lacks a field of its spec."""
    return HEAD | {"spec": {key: held for key, held in SPEC.items() if key != name}}


def source(**changes: Any) -> dict[str, Any]:
    """Return the manifest of a query with another source."""
    return of_spec(sources=[{"name": "ticks", "format": "rate", **changes}])


#: What is sent as a manifest, the field that is blamed, and a part of what is said.
MANIFESTS: list[tuple[str, Any, str, str]] = [
    ("empty", {}, "kind", "manifest kind"),
    ("unknown kind", HEAD | {"kind": "Pool"}, "kind", "manifest kind"),
    ("kind is a number", HEAD | {"kind": 7}, "kind", "manifest kind"),
    ("no version", {"kind": "Query", "metadata": {"name": "bad"}}, "apiVersion", "missing"),
    (
        "another version",
        HEAD | {"apiVersion": "headgate/v2", "spec": SPEC},
        "apiVersion",
        "allowed",
    ),
    ("no spec", HEAD, "spec", "missing"),
    ("spec is a text", HEAD | {"spec": "SELECT 1"}, "spec", "valid dictionary"),
    ("spec is null", HEAD | {"spec": None}, "spec", ""),
    ("no metadata", {"apiVersion": "headgate/v1", "kind": "Query", "spec": SPEC}, "metadata", ""),
    ("no name", HEAD | {"metadata": {}, "spec": SPEC}, "metadata.name", "missing"),
    ("name in capitals", query("Bad"), "metadata.name", "valid name"),
    ("name is a path", query("../bad"), "metadata.name", "valid name"),
    ("name is empty", query(""), "metadata.name", "valid name"),
    ("name too long", query("b" * 64), "metadata.name", "valid name"),
    ("bad label", query("bad", labels={"team": "A team"}), "metadata.labels.team", "valid label"),
    ("label is a number", query("bad", labels={"tier": 1}), "metadata.labels.tier", "string"),
    ("unknown field", HEAD | {"spec": SPEC, "status": {}}, "status", "not a field"),
    (
        "unknown in metadata",
        HEAD | {"metadata": {"name": "bad", "namespace": "x"}, "spec": SPEC},
        "metadata.namespace",
        "not a field",
    ),
    ("unknown in spec", of_spec(cadence="daily"), "spec.cadence", "not a field"),
    ("unknown kind of query", of_spec(kind="scala"), "spec.kind", "kind"),
    ("no sources", without("sources"), "spec.sources", "missing"),
    ("no sink", without("sink"), "spec.sink", ""),
    ("no sql", of_spec(sql=""), "spec.sql", ""),
    ("sql is a list", of_spec(sql=["SELECT 1"]), "spec.sql", "string"),
    ("sql of nothing", of_spec(sql="SELECT * FROM nowhere"), "spec.sql", "nowhere"),
    ("unknown format", source(format="telepathy"), "spec.sources.0.format", ""),
    (
        "bad interval",
        of_spec(trigger={"kind": "processing_time", "interval": "soon"}),
        "spec.trigger.interval",
        "",
    ),
    ("unknown trigger", of_spec(trigger={"kind": "often"}), "spec.trigger.kind", ""),
    ("unknown pool", of_spec(pool="light"), "spec.pool", "pool"),
    (
        "forbidden conf",
        of_spec(conf={"spark.driver.memory": "8g"}),
        "spec.conf.spark.driver.memory",
        "",
    ),
    (
        "plain secret",
        source(options={"password": "hunter22"}),
        "spec.sources.0.options.password",
        "secret",
    ),
    ("checkpoint is relative", of_spec(checkpoint="here"), "spec.checkpoint", "absolute"),
    ("checkpoint is the root", of_spec(checkpoint="/"), "spec.checkpoint", "root"),
    ("checkpoint goes up", of_spec(checkpoint="/a/../b"), "spec.checkpoint", ""),
    ("checkpoint is held", of_spec(checkpoint="/held/there"), "spec.checkpoint", "query there"),
    ("checkpoint inside another", of_spec(checkpoint="/held/there/x"), "spec.checkpoint", "inside"),
    ("bad desired", query("bad", desired="FLYING"), "desired", "allowed"),
    ("no such application", query("bad", application="nowhere"), "metadata.application", ""),
    (
        "anothers own application",
        query("bad", application="there"),
        "metadata.application",
        "created only for query there",
    ),
    (
        "team of a shared one",
        HEAD | {"metadata": {"name": "bad", "application": "shared", "team": "data"}, "spec": SPEC},
        "metadata.team",
        "new application",
    ),
    (
        "no such team",
        HEAD | {"metadata": {"name": "bad", "team": "nowhere"}, "spec": SPEC},
        "metadata.team",
        "not an existing team",
    ),
    (
        "no such value",
        of_spec(description="${values.NOPE}"),
        "spec.description",
        "is not a known value",
    ),
    (
        "NUL in a description",
        of_spec(description="a\x00b"),
        "manifests.0.manifest.spec.description",
        "U+0000",
    ),
    (
        "NUL in a key",
        of_spec(labels={"a\x00b": "c"}),
        "manifests.0.manifest.spec.labels.a\\u0000b",
        "U+0000",
    ),
    (
        "half of a pair",
        of_spec(description="a\ud800"),
        "manifests.0.manifest.spec.description",
        "U+D800",
    ),
    ("bad memory", application("bad", memory="much"), "spec.memory", "memory"),
    ("bad master", application("bad", master="mesos://x"), "spec.master", "master"),
    (
        "bad pool name",
        application("bad", pools=[{"name": "a/b"}]),
        "spec.pools.0.name",
        "pool name",
    ),
    (
        "pool twice",
        application("bad", pools=[{"name": "a"}, {"name": "a"}]),
        "spec.pools.1.name",
        "twice",
    ),
    (
        "Spark's own pool",
        application("bad", pools=[{"name": "default"}]),
        "spec.pools.0.name",
        "own",
    ),
    (
        "pool too heavy",
        application("bad", pools=[{"name": "a", "weight": 0}]),
        "spec.pools.0.weight",
        "greater",
    ),
    (
        "code outside of the roots",
        application("bad", python_path=["/etc"]),
        "spec.python_path.0",
        "outside",
    ),
    (
        "no such connector",
        application("bad", connectors=["carrier-pigeon"]),
        "spec.connectors.0",
        "connector",
    ),
    (
        "checkpoint of one that is there",
        query("there", spec={"checkpoint": "/moved"}),
        "spec.checkpoint",
        "not the query's checkpoint",
    ),
    (
        "application of one that is there",
        query("there", application="shared"),
        "metadata.application",
        "cannot be changed",
    ),
    (
        "team of one that is there",
        {
            "apiVersion": "headgate/v1",
            "kind": "Application",
            "metadata": {"name": "shared", "team": "data"},
            "spec": {},
        },
        "metadata.team",
        "not the application's team",
    ),
    (
        "pool that a query is in",
        application("shared"),
        "spec.pools",
        "would break query pooled",
    ),
]

#: What is sent in place of the set, the field that is blamed, and a part of what is said.
SETS: list[tuple[str, Any, str, str]] = [
    ("nothing", {}, "owner", "missing"),
    ("a list", [], "body", "JSON object"),
    ("a text", "apply this", "body", "JSON object"),
    ("no manifests", {"owner": "repo"}, "manifests", "missing"),
    ("an owner with a space", {"owner": "a repo", "manifests": []}, "owner", "valid owner name"),
    ("an unknown field", body(owner="repo", force=True), "force", "not a field"),
    ("a short commit", body(source={"commit": "abc123"}), "source.commit", "full commit hash"),
    ("manifests are a text", {"owner": "repo", "manifests": "x"}, "manifests", "list"),
    ("a file is a text", {"owner": "repo", "manifests": ["x"]}, "manifests.0", ""),
    ("a file holds nothing", {"owner": "repo", "manifests": [{"path": "a"}]}, "manifests.0", "one"),
    (
        "a file holds both",
        {"owner": "repo", "manifests": [{"manifest": {}, "text": "x"}]},
        "manifests.0",
        "one",
    ),
    (
        "a secret among the values",
        body(values={"PASSWORD": "hunter22"}),
        "values.PASSWORD",
        "secret",
    ),
    ("a value is a list", body(values={"A": [1]}), "values.A", "plain value"),
    ("a value without a name", body(values={"": "x"}), "values.", "valid name"),
    ("prune_running alone", body(prune_running=True), "prune_running", "without prune"),
    ("NUL in the owner", body(owner="a\x00b"), "owner", "U+0000"),
    ("half of a pair in the owner", body(owner="\udfff"), "owner", "U+DFFF"),
    (
        "half of a pair in the repository",
        body(source={"repository": "\ud800"}),
        "source.repository",
        "U+D800",
    ),
    (
        "NUL in a path",
        {"owner": "repo", "manifests": [{"path": "a\x00", "manifest": {}}]},
        "manifests.0.path",
        "U+0000",
    ),
    ("NUL in a value", body(values={"A": "\x00"}), "values.A", "U+0000"),
    ("dry_run is a word", body(dry_run="perhaps"), "dry_run", "boolean"),
]

#: What is sent as a file's text, and a part of what is said.
TEXTS = [
    ("not readable YAML", "a: [", "line"),
    ("an alias", "a: &x 1\nb: *x", "aliases"),
    ("billion laughs", "a: &a [1]\nb: &b [*a,*a]\nc: [*b,*b]", "aliases"),
    ("a key twice", "kind: Query\nkind: Application", "appears twice"),
    ("code", "!!python/object/apply:os.system ['true']", "constructor"),
    ("a number as a key", "1: 2", "not text"),
    ("too deep", "[" * 60 + "]" * 60, "nested"),
    ("a NUL", "a: \x00", "YAML"),
    ("a NUL by its escape", 'kind: "a\\0b"', "U+0000"),
    ("half of a pair", "a: \ud800", "U+D800"),
    ("half of a pair by its escape", 'a: "\\ud800"', ""),
    ("a huge number", "a: 1e999", "too large"),
    ("nothing", "", "contains no manifest"),
    ("a comment", "# nothing here", "contains no manifest"),
    ("a list", "- a", "not an object"),
    ("a word", "hello", "not an object"),
]


@pytest.fixture(scope="module")
def there(story: None) -> APIClient:
    """Have something there; return Aude's client, whose token is made before too."""
    ada, aude = client_of(person("ada", "admin")), client_of(person("aude", "author"))
    single = {"name": "there", "spec": SPEC, "checkpoint": "/held/there"}
    shared = {"name": "shared", "spec": {}}
    pooled = {"name": "pooled", "spec": SPEC | {"pool": "light"}, "application": "shared"}
    for address, sent in (
        ("queries/", single),
        ("applications/", shared),
        ("applications/shared/pools/", {"name": "light"}),
        ("queries/", pooled),
    ):
        assert ada.post(f"/api/v1/{address}", sent, format="json").status_code == 201
    return aude


@pytest.fixture
def as_author(there: APIClient, db: None) -> Iterator[APIClient]:
    """Return Aude's client, and see that nothing is changed by what it asked."""
    before = definitions()
    yield there
    assert definitions() == before


def applied(client: APIClient, sent: Any) -> Any:
    """Return the answer to a set, which may hold what the client's own JSON cannot."""
    raw = json.dumps(sent)
    return client.post("/api/v1/apply/", raw, content_type="application/json")


def problems_of(answer: Any) -> list[dict[str, str]]:
    """Return what an answer blames, of the set or of its objects."""
    assert answer.status_code == 422, answer.content
    found = answer.json()
    if "objects" not in found:
        return list(found["problems"])
    return [problem for one in found["objects"] for problem in one["problems"]]


#: Of the above, where nothing is given that an answer could show.
NOTHING_GIVEN = {
    *("empty", "no version", "no spec", "no metadata", "no name", "name is empty", "no sources"),
    *("no sink", "no sql", "nothing", "no manifests", "a value without a name", "a comment"),
}


def check(problems: list[dict[str, str]], field: str, said: str, *, name: str = "") -> None:
    """See that a field is blamed, and that each problem says what was given, and what to do."""
    blamed = [one for one in problems if one["field"] == field]
    assert blamed, problems
    assert any(said in f"{one['message']} {one['way_out']}" for one in blamed), blamed
    check_told(problems, nothing_given=name in NOTHING_GIVEN)


@pytest.mark.parametrize(
    ("name", "manifest", "field", "said"), MANIFESTS, ids=[one[0] for one in MANIFESTS]
)
def test_a_bad_manifest_refuses_its_set(
    as_author: APIClient, name: str, manifest: Any, field: str, said: str
) -> None:
    files = [{"path": "bad.yaml", "manifest": manifest}]
    files.append({"path": "good.yaml", "manifest": query("good")})
    answer = applied(as_author, {"owner": "r", "manifests": files})
    check(problems_of(answer), field, said, name=name)


@pytest.mark.parametrize(("name", "sent", "field", "said"), SETS, ids=[one[0] for one in SETS])
def test_a_bad_set_is_refused(
    as_author: APIClient, name: str, sent: Any, field: str, said: str
) -> None:
    check(problems_of(applied(as_author, sent)), field, said, name=name)


@pytest.mark.parametrize(("name", "text", "said"), TEXTS, ids=[one[0] for one in TEXTS])
def test_a_bad_text_is_refused(as_author: APIClient, name: str, text: str, said: str) -> None:
    sent = {"owner": "r", "manifests": [{"path": "bad.yaml", "text": text}]}
    problems = problems_of(applied(as_author, sent))
    assert any(said in one["message"] for one in problems), problems
    check_told(problems, nothing_given=name in NOTHING_GIVEN)


#: Where else a body has texts: the address, what is sent, the field that is blamed.
ELSEWHERE: list[tuple[str, dict[str, Any], str]] = [
    ("queries/", {"name": "bad", "spec": SPEC | {"description": "a@"}}, "spec.description"),
    ("queries/", {"name": "bad@", "spec": SPEC}, "name"),
    ("applications/", {"name": "bad", "spec": {"conf": {"a@": "b"}}}, "spec.conf."),
    ("applications/shared/pools/", {"name": "a@"}, "name"),
    ("deploys/", {"apply": body(query("good")), "waves": {"canary": ["a@"]}}, "waves.canary.0"),
    (
        "deploys/",
        {"apply": {"owner": "r", "manifests": [{"path": "a@", "text": "a"}]}},
        "apply.manifests.0.path",
    ),
    ("queries:restart/", {"selector": "name=a@"}, "selector"),
]


@pytest.mark.parametrize("character", ["\x00", "\ud800"], ids=["NUL", "surrogate"])
@pytest.mark.parametrize(("address", "sent", "field"), ELSEWHERE)
def test_what_no_text_can_hold_is_refused_everywhere(
    as_author: APIClient, address: str, sent: dict[str, Any], field: str, character: str
) -> None:
    raw = json.dumps(sent).replace("@", json.dumps(character)[1:-1])
    answer = as_author.post(f"/api/v1/{address}", raw, content_type="application/json")
    assert answer.status_code == 422, answer.content
    (problem,) = answer.json()["problems"]
    assert problem["field"].startswith(field)
    assert "which JSON and YAML can express" in problem["message"]
    check_told([problem])


def test_an_object_that_stands_twice_is_refused(as_author: APIClient) -> None:
    answer = as_author.post("/api/v1/apply/", body(query("one"), query("one")), format="json")
    check(problems_of(answer), "metadata.name", "also defined in one.yaml")


def test_two_of_a_set_cannot_share_a_checkpoint(as_author: APIClient) -> None:
    place = {"checkpoint": "/shared/place"}
    sent = body(query("one", spec=place), query("two", spec=place))
    check(
        problems_of(as_author.post("/api/v1/apply/", sent, format="json")), "spec.checkpoint", "one"
    )


def test_python_needs_its_right(as_author: APIClient) -> None:
    python = HEAD | {"spec": {"kind": "python", "function": "flights:build"}}
    answer = as_author.post("/api/v1/apply/", body(python, application("a")), format="json")
    assert answer.status_code in (403, 422)
