"""Definitions are stored whole and valid, or not at all."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from queries.domain.errors import Conflict, Invalid, NotAllowed, StaleRevision
from queries.models.applications import Application, SchedulerPool
from queries.models.definitions import Checkpoint, Query
from queries.models.history import Transition
from queries.roles import AuthorRights
from queries.services.definitions import catalog

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, settings: Settings) -> None:
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"
    settings.CONNECTORS_DIR = tmp_path / "connectors"
    settings.CODE_ROOTS = [tmp_path / "code"]
    settings.SECRET_ENV_ALLOWLIST = ("DB_PASSWORD",)


def rate(**changes: Any) -> dict[str, Any]:
    """Return a small definition that is right."""
    return {
        "kind": "sql",
        "sources": [{"name": "ticks", "format": "rate"}],
        "sql": "SELECT value FROM ticks",
        "sink": {"format": "noop"},
        **changes,
    }


def create(name: str = "ticks", **changes: Any) -> Query:
    spec = changes.pop("spec", rate())
    return catalog.create_query(
        name=name, spec=spec, actor="ana", now=NOW, **{"rights": AuthorRights.ALL, **changes}
    )


def application(name: str = "shared", **spec: Any) -> Application:
    return catalog.create_application(
        name=name, spec=spec, actor="ana", now=NOW, rights=AuthorRights.ALL
    )


def problems(error: pytest.ExceptionInfo[Invalid]) -> dict[str, str]:
    return {problem.field: problem.sentence() for problem in error.value.problems}


def test_a_query_comes_with_an_application_a_checkpoint_and_revision_1(tmp_path: Path) -> None:
    query = create()

    assert query.application.name == "ticks"
    assert query.application.own
    assert query.application.target_revision is not None
    assert query.application.target_revision.number == 1
    assert [row.location for row in query.checkpoints.all()] == [
        f"file://{tmp_path.resolve()}/checkpoints/ticks"
    ]
    revision = query.revisions.get()
    assert (revision.number, revision.kind, revision.author) == (1, "sql", "ana")
    assert revision.spec["sources"][0]["schema"] == ""
    assert query.desired == "STOPPED"


def test_what_was_defined_and_by_whom_is_on_record() -> None:
    query = create()
    catalog.revise_query(
        query=query, spec=rate(description="x"), expected_revision=1, actor="bo", now=LATER
    )
    rows = Transition.objects.filter(query=query, subject="definition").order_by("at")
    assert [(row.before, row.after, row.actor) for row in rows] == [
        ("", "revision 1", "ana"),
        ("revision 1", "revision 2", "bo"),
    ]


def test_nothing_is_left_of_a_query_that_was_refused() -> None:
    with pytest.raises(Invalid):
        create(spec=rate(sql="SELECT value FROM tocks"))
    assert not Query.objects.exists()
    assert not Application.objects.exists()
    assert not Checkpoint.objects.exists()


def test_every_problem_is_found_at_once() -> None:
    with pytest.raises(Invalid) as error:
        create(
            name="Not A Name",
            checkpoint="somewhere",
            spec=rate(sink={"format": "papyrus"}, conf={"spark.plugins": "x"}, pool="fast"),
            application_spec={"memory": "lots"},
        )
    assert set(problems(error)) == {
        "name",
        "checkpoint",
        "sink.format",
        "conf.spark.plugins",
        "pool",
        "application_spec.memory",
    }


def test_a_name_is_taken_while_its_query_lives_and_free_once_it_is_archived() -> None:
    first = create()
    with pytest.raises(Invalid) as error:
        create()
    assert "another query" in problems(error)["name"]

    Checkpoint.objects.filter(query=first).update(retired_at=LATER)
    Query.objects.filter(pk=first.pk).update(archived_at=LATER)
    second = create()
    assert second.application.name == "ticks-2"
    assert second.checkpoints.get().location.endswith("/checkpoints/ticks-2")


@pytest.mark.parametrize(
    ("location", "relation"),
    [
        ("/data/checkpoints/a", "is the checkpoint of query holder"),
        ("file:///data/checkpoints/a/", "is the checkpoint of query holder"),
        ("/data/checkpoints/./a", "is the checkpoint of query holder"),
        ("/data/checkpoints/a/b", "is inside"),
        ("/data/checkpoints", "contains"),
    ],
)
def test_a_checkpoint_that_is_held_or_nested_is_refused_naming_the_holder(
    location: str, relation: str
) -> None:
    create("holder", checkpoint="/data/checkpoints/a")
    with pytest.raises(Invalid) as error:
        create("other", checkpoint=location)
    assert relation in problems(error)["checkpoint"]
    assert "holder" in problems(error)["checkpoint"]


def test_a_symbolic_link_to_a_held_checkpoint_is_seen_through(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    create("holder", checkpoint=f"{tmp_path}/real/c")
    with pytest.raises(Invalid) as error:
        create("other", checkpoint=f"{tmp_path}/link/c")
    assert "holder" in problems(error)["checkpoint"]


def test_a_neighbouring_folder_with_the_same_beginning_is_no_nesting() -> None:
    create("one", checkpoint="/data/a")
    assert create("two", checkpoint="/data/a2").name == "two"


@pytest.mark.parametrize("location", ["data/a", "/data/../a", "/data/*", "/", "s3a:///a", "hdfs:a"])
def test_a_location_that_is_none_is_refused(location: str) -> None:
    with pytest.raises(Invalid) as error:
        create(checkpoint=location)
    assert set(problems(error)) == {"checkpoint"}


def test_on_yarn_a_checkpoint_names_its_file_system() -> None:
    application(master="yarn")
    with pytest.raises(Invalid) as error:
        create(application="shared", checkpoint="/user/etl/ck")
    assert "Write hdfs://NAMESERVICE/user/etl/ck" in problems(error)["checkpoint"]
    assert create(application="shared", checkpoint="file:///data/ck").checkpoints.get().location


def test_an_application_does_not_move_to_yarn_under_a_path_that_would_move(tmp_path: Path) -> None:
    sink = {"format": "parquet", "options": {"path": f"{tmp_path}/data/out"}}
    shared = application()
    create(application="shared", spec={**rate(), "sink": sink})
    with pytest.raises(Invalid) as error:
        catalog.plan_application(
            application=shared, spec={"master": "yarn"}, rights=AuthorRights.ALL
        )
    assert "sink.options.path names no file system" in problems(error)["master"]


def test_a_revision_equal_to_the_newest_adds_nothing() -> None:
    query = create()
    same = catalog.revise_query(
        query=query, spec=rate(), expected_revision=1, actor="bo", now=LATER
    )
    assert same.number == 1
    assert query.revisions.count() == 1


def test_a_change_of_an_older_revision_is_refused() -> None:
    query = create()
    catalog.revise_query(
        query=query, spec=rate(description="b"), expected_revision=1, actor="bo", now=LATER
    )
    with pytest.raises(StaleRevision, match="revision 2 is the newest"):
        catalog.revise_query(
            query=query, spec=rate(description="c"), expected_revision=1, actor="cy", now=LATER
        )


def test_a_revision_changes_nothing_that_runs() -> None:
    query = create()
    catalog.revise_query(
        query=query, spec=rate(description="b"), expected_revision=None, actor="bo", now=LATER
    )
    query.refresh_from_db()
    assert query.target_revision is None
    assert query.generation == 0


def test_an_archived_query_cannot_be_revised() -> None:
    query = create()
    Query.objects.filter(pk=query.pk).update(archived_at=LATER)
    with pytest.raises(NotAllowed, match="deleted"):
        catalog.revise_query(
            query=query, spec=rate(), expected_revision=None, actor="bo", now=LATER
        )


def test_the_name_of_a_deleted_application_is_free_again() -> None:
    deleted = application()
    Application.objects.filter(pk=deleted.pk).update(archived_at=LATER)
    assert application().pk != deleted.pk


def test_queries_share_an_application_that_is_named() -> None:
    shared = application()
    one = create("one", application="shared")
    two = create("two", application="shared")
    assert one.application == two.application == shared


def test_an_application_made_for_one_query_takes_no_second() -> None:
    create("one")
    with pytest.raises(Invalid) as error:
        create("two", application="one")
    assert "created only for query one" in problems(error)["application"]


def test_an_application_that_is_not_there_is_named() -> None:
    with pytest.raises(Invalid) as error:
        create(application="nowhere")
    assert "is not an existing application" in problems(error)["application"]


def test_an_application_of_ones_own_takes_its_spec_with_the_query() -> None:
    query = create(application_spec={"memory": "2g", "conf": {"spark.task.maxFailures": 2}})
    revision = query.application.revisions.get()
    assert revision.spec["memory"] == "2g"
    assert revision.spec["conf"] == {"spark.task.maxFailures": "2"}


def test_the_spec_of_a_shared_application_is_not_changed_in_passing() -> None:
    application()
    with pytest.raises(Invalid) as error:
        create(application="shared", application_spec={"memory": "2g"})
    assert "application_spec" in problems(error)


def test_a_revision_waits_for_a_start_and_equal_specs_are_one_revision() -> None:
    shared = application()
    revision = catalog.revise_application(
        application=shared, spec={"memory": "2g"}, expected_revision=1, actor="bo", now=LATER
    )
    shared.refresh_from_db()
    assert revision.number == 2
    assert shared.target_revision is not None
    assert shared.target_revision.number == 1
    again = catalog.revise_application(
        application=shared, spec={"memory": "2g"}, expected_revision=2, actor="bo", now=LATER
    )
    assert again == revision


def test_a_pool_is_made_changed_and_kept_while_it_is_used() -> None:
    shared = application()
    pool = catalog.save_pool(
        application=shared, spec={"name": "light", "min_share": 1}, actor="ana", now=NOW
    )
    query = create("one", application="shared", spec=rate(pool="light"))
    catalog.save_pool(
        application=shared, spec={"name": "light", "weight": 3}, actor="ana", now=LATER
    )
    pool.refresh_from_db()
    assert (pool.weight, pool.min_share) == (3, 0)

    with pytest.raises(Conflict, match="used by one"):
        catalog.delete_pool(pool=pool, actor="ana", now=LATER)

    catalog.revise_query(
        query=query, spec=rate(pool=""), expected_revision=1, actor="ana", now=LATER
    )
    catalog.delete_pool(pool=pool, actor="ana", now=LATER)
    assert not SchedulerPool.objects.exists()


def test_an_application_keeps_the_scheduler_mode_that_its_queries_pools_need() -> None:
    shared = application()
    catalog.save_pool(application=shared, spec={"name": "light"}, actor="ana", now=NOW)
    create("one", application="shared", spec=rate(pool="light"))
    with pytest.raises(Invalid) as error:
        catalog.revise_application(
            application=shared,
            spec={"scheduler_mode": "FIFO"},
            expected_revision=1,
            actor="bo",
            now=LATER,
        )
    assert "query one" in problems(error)["scheduler_mode"]


def python(function: str) -> dict[str, Any]:
    return {"kind": "python", "function": function, "sink": {"format": "noop"}}


def code(tmp_path: Path, name: str, text: str) -> dict[str, Any]:
    root = tmp_path / "code" / "mine"
    root.mkdir(parents=True, exist_ok=True)
    (root / f"{name}.py").write_text(text)
    return {"python_path": [str(root)]}


def test_a_function_that_is_there_is_taken(tmp_path: Path) -> None:
    own = code(tmp_path, "job", "def build(spark, params): ...\n")
    assert create(spec=python("job:build"), application_spec=own).revisions.get().kind == "python"


@pytest.mark.parametrize(
    ("function", "text", "says"),
    [
        ("jab:build", "def build(): ...", "there is no module jab"),
        ("job:bild", "def build(): ...", "contains no function bild"),
        ("job:build", "def build(:", "cannot be read in line 1"),
        ("job.build", "def build(): ...", "does not name a function"),
    ],
)
def test_a_function_that_is_certainly_not_there_is_refused(
    tmp_path: Path, function: str, text: str, says: str
) -> None:
    own = code(tmp_path, "job", text)
    with pytest.raises(Invalid) as error:
        create(spec=python(function), application_spec=own)
    assert says in problems(error)["function"]


def test_a_root_that_holds_a_module_named_like_ours_is_refused(tmp_path: Path) -> None:
    own = code(tmp_path, "queries", "")
    with pytest.raises(Invalid) as error:
        application(**own)
    assert "module named queries" in problems(error)["python_path.0"]


@pytest.mark.parametrize("path", ["/etc", "code/mine", "../.."])
def test_a_root_outside_of_the_allowed_folders_is_refused(path: str) -> None:
    with pytest.raises(Invalid) as error:
        application(python_path=[path])
    assert "python_path.0" in problems(error)


def test_kafka_waits_for_its_connector(tmp_path: Path) -> None:
    kafka = rate(
        sources=[
            {
                "name": "ticks",
                "format": "kafka",
                "options": {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"},
            }
        ]
    )
    with pytest.raises(Invalid) as error:
        create(spec=kafka)
    assert "needs the kafka connector" in problems(error)["sources.0.format"]
    with pytest.raises(Invalid) as error:
        create(spec=kafka, application_spec={"connectors": ["kafka"]})
    assert "not an installed connector" in problems(error)["application_spec.connectors.0"]

    (tmp_path / "connectors" / "kafka").mkdir(parents=True)
    (tmp_path / "connectors" / "kafka" / "a.jar").touch()
    assert create(spec=kafka, application_spec={"connectors": ["kafka"]}).pk


def test_checking_writes_nothing() -> None:
    catalog.plan_query(name="ticks", spec=rate())
    with pytest.raises(Invalid):
        catalog.plan_query(name="ticks", spec=rate(sql=""))
    assert not Query.objects.exists()


def test_a_query_being_edited_does_not_clash_with_itself() -> None:
    query = create()
    catalog.plan_query(name="ticks", spec=rate(description="b"), query=query)


def test_the_queries_of_a_shared_application_keep_their_checkpoints_in_its_folder() -> None:
    """Its driver is given the folder, so that it can host queries that are added later."""
    application("flights")
    first = create("delays", application="flights")
    assert first.checkpoints.get().location.endswith("/checkpoints/_flights/delays")
    assert create("flights").checkpoints.get().location.endswith("/checkpoints/flights")


def test_a_checkpoint_in_a_store_needs_the_stores_connector(settings: Settings) -> None:
    settings.ALLOWED_PATHS = ["/", "s3a://flights"]
    installed = Path(settings.CONNECTORS_DIR) / "s3"
    installed.mkdir(parents=True)
    (installed / "hadoop-aws.jar").touch()
    place = "s3a://flights/checkpoints/a"
    application("bare")
    row = application("equipped", connectors=["s3"])
    with pytest.raises(Invalid) as refused:
        create("a", application="bare", checkpoint=place)
    assert "needs the s3 connector" in problems(refused)["checkpoint"]
    create("a", application="equipped", checkpoint=place)
    with pytest.raises(Invalid, match="would break query a: its checkpoint needs the s3 connector"):
        catalog.revise_application(
            application=row,
            spec={},
            expected_revision=1,
            actor="ana",
            now=LATER,
            rights=AuthorRights.ALL,
        )
