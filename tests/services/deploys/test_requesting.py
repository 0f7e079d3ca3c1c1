"""What a deploy takes, and what it refuses at once."""

from typing import Any

import pytest

from queries.domain.errors import Conflict, Invalid, NotAllowed
from queries.domain.manifests.sets import parse_set
from queries.models.access.audit import AuditEntry
from queries.models.applications import Application
from queries.models.definitions import Query
from queries.models.deploys import Deploy, DeployChange
from queries.selectors.query_lines import query_line
from queries.services.deploys import steps
from queries.services.deploys.requesting import cancel_deploy
from queries.services.manifests.planning import plan
from tests.scenarios.deploys.way import NOTE, Way, ada
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


@pytest.fixture
def way(stage: Stage) -> Way:
    stage.query("a")
    stage.up("a")
    return Way(stage)


def test_two_deploys_do_not_change_one_query_at_the_same_time(way: Way) -> None:
    first = way.change("a")
    with pytest.raises(Conflict, match=str(first.uuid)):
        way.change("a", note="another")
    way.came_up("a")
    assert way.change("a", note="another").state == "RUNNING"


@pytest.mark.parametrize(
    ("changes", "how", "field"),
    [
        ({"conf": {NOTE: "x"}}, {"waves": {"canary": ["b"]}}, "waves.canary"),
        ({"trigger": {"kind": "processing_time", "interval": "soon"}}, {}, "spec.trigger"),
        ({"pool": "none"}, {}, "spec.pool"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    way: Way, stage: Stage, changes: dict[str, Any], how: dict[str, Any], field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        way.ask(way.manifest("a", **changes), **how)
    assert field in caught.value.problems[0].field
    assert not Deploy.objects.exists()
    assert stage.row("a").revisions.count() == 1


def test_a_deploy_of_nothing_succeeds_and_says_so(way: Way) -> None:
    deploy = way.ask(way.manifest("a"))
    assert (deploy.state, deploy.waves) == ("SUCCEEDED", 0)
    assert not deploy.changes.exists()


def test_who_asked_and_how_it_ended_stand_in_the_audit_log(way: Way) -> None:
    deploy = way.change("a")
    way.came_up("a")
    entries = AuditEntry.objects.filter(kind="deploy", subject="repo").order_by("pk")
    assert [entry.actor for entry in entries] == ["ada", "ada"]
    assert entries[1].details["state"] == "SUCCEEDED"
    assert entries[0].details["deploy"] == str(deploy.uuid)


def test_what_has_ended_cannot_be_cancelled(way: Way) -> None:
    way.change("a")
    deploy = way.came_up("a")
    with pytest.raises(NotAllowed, match="SUCCEEDED"):
        cancel_deploy(deploy, actor="olga", now=way.stage.now)


def test_a_definition_that_was_edited_meanwhile_is_not_written_over(way: Way, stage: Stage) -> None:
    stage.query("b")
    stage.up("b")
    way.change("a", "b", waves={"canary": ["a"], "size": 1})
    stage.revise("b", conf={NOTE: "by hand"})
    deploy = way.came_up("a")
    assert "b was changed after the deploy was requested" in str(deploy.reason)
    assert stage.row("b").revisions.latest("number").spec["conf"][NOTE] == "by hand"


def test_a_definition_that_was_edited_after_its_wave_is_not_rolled_back_over(
    way: Way, stage: Stage
) -> None:
    way.change("a", good={"batches": 9})
    way.came_up("a")
    stage.revise("a", conf={NOTE: "by hand"})
    deploy = way.work(minutes=11)
    assert deploy.state == "FAILED"
    assert stage.row("a").revisions.latest("number").spec["conf"][NOTE] == "by hand"


def test_a_query_that_somebody_stops_is_not_started_again_by_the_way_back(
    way: Way, stage: Stage
) -> None:
    way.change("a")
    way.leave("a", "a")
    stage.stop("a")
    deploy = way.work()
    assert "stopped in the meantime" in str(deploy.reason)
    assert deploy.state == "ROLLED_BACK"
    assert stage.row("a").desired == "STOPPED"
    assert NOTE not in stage.row("a").revisions.latest("number").spec.get("conf", {})


def test_a_step_that_always_breaks_ends_the_deploy_at_its_deadline(
    way: Way, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(steps, "plan", broken)
    deploy = way.change("a")
    assert (deploy.state, deploy.stage) == ("RUNNING", "write")
    deploy = way.work(minutes=11)
    assert deploy.state == "FAILED"
    assert "OSError: the disk is gone" in str(deploy.reason)
    assert stage.row("a").revisions.count() == 1


def test_a_deploy_can_hold_the_name_of_any_query() -> None:
    """Also of one that a script has started, beside what the deploy changes."""
    names = [model._meta.get_field("name").max_length for model in (Query, DeployChange)]
    assert names[0] == names[1]


# --- what a change restarts -----------------------------------------------------------------


def of_application(name: str, **changes: Any) -> dict[str, Any]:
    spec = Application.objects.get(name=name).revisions.latest("number").spec | changes
    head = {"apiVersion": "headgate/v1", "kind": "Application", "metadata": {"name": name}}
    return {**head, "spec": spec}


def test_a_new_description_is_written_and_restarts_nothing(way: Way, stage: Stage) -> None:
    run = stage.run("a")
    application = of_application("a", description="on time", policy={"base_delay_s": 9})
    deploy = way.ask(application, way.manifest("a", description="what it is for"))
    assert (deploy.state, deploy.waves) == ("SUCCEEDED", 0)
    row = stage.row("a")
    newest = row.revisions.latest("number")
    assert newest.spec["description"] == "what it is for"
    assert row.target_revision == newest
    assert stage.run("a").pk == run.pk
    pinned = Application.objects.get(name="a").target_revision
    assert pinned is not None
    assert pinned.spec["policy"]["base_delay_s"] == 9  # in force, without a restart
    line = query_line("a", now=stage.now)
    assert line.in_sync
    assert not line.needs_application_restart


def test_the_dry_run_says_what_each_change_takes(way: Way, stage: Stage) -> None:
    manifests = {
        "description": way.manifest("a", description="what it is for"),
        "note": way.manifest("a", conf={NOTE: "new"}),
        "memory": of_application("a", memory="2g"),
    }
    said = {}
    for field, manifest in manifests.items():
        files = [{"path": "a.yaml", "manifest": manifest}]
        asked = parse_set({"owner": "repo", "manifests": files})
        said[field] = plan(asked, user=ada(), now=stage.now).objects[0].effect
    assert said == {"description": "none", "note": "query restart", "memory": "driver restart"}


# --- the order of waves -------------------------------------------------------------------


def files(path: str) -> dict[str, Any]:
    return {"format": "parquet", "options": {"path": path}}


def flow(stage: Stage) -> None:
    """Let `z` write what `m` reads, and `m`, which no deploy changes, what `b` reads."""
    stage.query("z", sink=files("/data/z"))
    source = {"name": "flights", **files("/data/z")}
    stage.query("m", sources=[{**source, "schema": "a INT"}], sink=files("/data/m"))
    stage.query(
        "b",
        sources=[{"name": "flights", **files("/data/m"), "schema": "a INT"}],
        sink=files("/data/b"),
    )
    for name in ("z", "m", "b"):
        stage.up(name)


def waves_of(deploy: Deploy) -> list[list[str]]:
    names: dict[int, list[str]] = {}
    for wave, name in deploy.changes.order_by("wave", "name").values_list("wave", "name"):
        names.setdefault(wave, []).append(name)
    return [names[wave] for wave in sorted(names)]


@pytest.mark.parametrize(
    ("first", "waves"),
    [
        ("upstream", [["a", "z"], ["b"]]),
        ("downstream", [["a", "b"], ["z"]]),
        ("name", [["a", "b", "z"]]),
    ],
)
def test_waves_follow_the_lineage(
    way: Way, stage: Stage, first: str, waves: list[list[str]]
) -> None:
    flow(stage)
    deploy = way.change("a", "b", "z", waves={"first": first})
    assert waves_of(deploy) == waves
    reasons = {one.name: str(one.reason) for one in deploy.changes.filter(wave=2)}
    expected = {"upstream": ("b", "z"), "downstream": ("z", "b")}.get(first)
    if expected:
        assert reasons == {
            expected[0]: f"Its wave comes after that of {expected[1]}, because of the lineage."
        }


@pytest.mark.guarantee("G-SQL-1")
def test_an_order_that_may_be_incomplete_says_so(way: Way, stage: Stage) -> None:
    flow(stage)
    text = "SELECT 1 AS one FROM flights"  # which Spark's parser has not read
    sets = [way.manifest("z", conf={NOTE: "new"}), *(way.manifest(one, sql=text) for one in "ab")]
    deploy = way.ask(*sets)
    assert waves_of(deploy) == [["a", "z"], ["b"]]
    assert deploy.unsure == ["a", "b"]


def test_waves_follow_the_lineage_that_the_set_leaves(way: Way, stage: Stage) -> None:
    flow(stage)
    source = {"name": "flights", **files("/data/b"), "schema": "a INT"}
    deploy = way.ask(
        way.manifest("b", conf={NOTE: "new"}, sources=[{"name": "flights", "format": "rate"}]),
        way.manifest("z", sources=[source]),
    )
    assert waves_of(deploy) == [["b"], ["z"]]


def test_a_circle_goes_by_name_and_is_named(way: Way, stage: Stage) -> None:
    flow(stage)
    source = {"name": "flights", **files("/data/b"), "schema": "a INT"}
    deploy = way.ask(way.manifest("b", conf={NOTE: "new"}), way.manifest("z", sources=[source]))
    assert waves_of(deploy) == [["b", "z"]]
    [entry] = AuditEntry.objects.filter(kind="deploy", subject="repo")
    assert entry.details["circles"] == [["b", "z"]]
