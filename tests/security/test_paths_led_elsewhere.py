"""Options and configuration that would have a path in the allowed paths mean another place."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from queries.domain.definitions.allowed_paths import conf_places, option_places
from queries.domain.definitions.code import application_brings_code
from queries.domain.definitions.configuration import application_conf_problems, query_conf_problems
from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.errors import Invalid, NotAllowed
from queries.domain.validation.spark_rules import OPTIONS_BY_FORMAT, refused
from queries.driver_folder import DriverFolder
from queries.models.applications import ApplicationRevision
from queries.models.definitions import QueryRevision
from queries.models.history import Failure
from queries.roles import AuthorRights
from queries.runtime import spark_session
from queries.secret_references import References
from queries.services.definitions import catalog
from queries.services.deploys.rollback import rollback_query
from queries.services.secrets import BrokerSecrets, query_refusal
from tests.api.manifests.conftest import application, body, query
from tests.launchers.test_contract import _spec as driver_spec
from tests.scenarios.stage import Stage

REPOSITORY = Path(__file__).resolve().parents[2]
_VIEWFS = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"


def mounted(folder: str, target: str) -> dict[str, str]:
    """Return the options by which Hadoop mounts `target` upon a folder."""
    return {
        "fs.file.impl": _VIEWFS,
        "fs.file.impl.disable.cache": "true",
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
        f"fs.viewfs.mounttable.default.link.{folder}": f"file://{target}",
    }


MOUNT = mounted("/data/in", "/own")


# --- options -------------------------------------------------------------------------------


@pytest.mark.guarantee("G-PATH-4")
@pytest.mark.parametrize("name", ["json", "csv", "parquet", "orc", "text", "avro", "delta", "noop"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        *MOUNT.items(),
        ("FS.File.Impl", _VIEWFS),
        ("fs.defaultFS", "viewfs://x/"),
        ("hadoop.tmp.dir", "/own"),
        ("io.compression.codecs", "com.attacker.Codec"),
        ("mapreduce.output.fileoutputformat.compress.codec", "com.attacker.Codec"),
        ("parquet.private.read.filter.predicate", "rO0AB"),
        ("parquet.read.support.class", "com.attacker.Support"),
        ("parquet.crypto.factory.class", "com.attacker.Factory"),
        ("orc.kryo.sarg", "AAAA"),
        ("spark.sql.sources.commitProtocolClass", "com.attacker.Commit"),
        ("paths", '["/own/secret_key"]'),
        ("compression", "com.attacker.Codec"),
    ],
)
def test_an_option_that_is_hadoops_or_loads_a_class_is_refused(
    name: str, option: str, value: str
) -> None:
    found = refused("sink.options", name, {option: value})
    assert [one.field for one in found] == [f"sink.options.{option}"]
    assert found[0].way_out


@pytest.mark.guarantee("G-PATH-4")
@pytest.mark.parametrize("name", ["json", "csv", "parquet", "orc", "text", "avro"])
def test_an_unknown_option_of_a_format_of_sparks_is_refused(name: str) -> None:
    found = refused("sink.options", name, {"acme.level": "1"})
    assert ["Hadoop" in one.message for one in found] == [True]


#: Options that a format reads itself, each with a value.
OF_A_FORMAT = [
    *(
        (name, option, "1")
        for name in OPTIONS_BY_FORMAT
        for option in OPTIONS_BY_FORMAT[name].values()
    ),
    ("parquet", "parquet.block.size", "1048576"),
    ("parquet", "parquet.bloom.filter.enabled#id", "true"),
    ("parquet", "compression", "zstd"),
    ("orc", "orc.bloom.filter.columns", "id"),
    ("orc", "orc.stripe.size", "1048576"),
    ("csv", "nullValue", "com.acme.Nothing"),
    ("json", "compression", "org.apache.hadoop.io.compress.GzipCodec"),
    ("delta", "mergeSchema", "true"),
    ("elasticsearch", "es.nodes", "search:9200"),
    ("console", "asyncProgressTrackingEnabled", "true"),
    ("kafka", "kafka.bootstrap.servers", "b:9092"),
]


def test_an_option_of_a_formats_own_is_not() -> None:
    found = {
        (name, option): told
        for name, option, value in OF_A_FORMAT
        if (told := refused("sink.options", name, {option: value}))
    }
    assert found == {}


# --- configuration -------------------------------------------------------------------------


@pytest.mark.guarantee("G-PATH-4")
@pytest.mark.parametrize("prefix", ["spark.hadoop.", "spark.sql.catalog.lake.hadoop."])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fs.defaultFS", "viewfs://x/"),
        ("fs.default.name", "viewfs://x/"),
        ("fs.viewfs.mounttable.x.link./data", "file:///own"),
        ("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem"),
        ("fs.a-b.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem"),
        ("fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.LocalFs"),
        ("fs.a-b.impl.disable.cache", "true"),
        ("parquet.private.read.filter.predicate", "rO0AB"),
        ("orc.kryo.sarg", "AAAA"),
        ("fs.s3a.security.credential.provider.path", "jceks://file/own/x.jceks"),
        ("hadoop.security.credstore.java-keystore-provider.file", "/own/secret_key"),
    ],
)
def test_configuration_that_leads_paths_elsewhere_is_refused(
    prefix: str, key: str, value: str
) -> None:
    found = application_conf_problems({f"{prefix}{key}": value})
    assert [one.field for one in found] == [f"conf.{prefix}{key}"]
    assert found[0].way_out
    assert "cannot" not in found[0].message  # it is this guard's
    if prefix.startswith("spark.sql."):
        assert query_conf_problems({f"{prefix}{key}": value}) == found


@pytest.mark.parametrize("name", ["a.hadoop.b", "hadoop", "x"])
def test_a_catalogs_name_hides_nothing(name: str) -> None:
    key = f"spark.sql.catalog.{name}.hadoop.fs.defaultFS"
    assert application_conf_problems({key: "viewfs://x/"})


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider",
        "org.apache.hadoop.fs.s3a.auth.delegation.SessionTokenBinding",
        "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.ProcessCredentialsProvider",
        "com.amazonaws.auth.profile.ProfileCredentialsProvider",
    ],
)
def test_a_provider_that_reads_a_profile_or_runs_a_program_is_none_of_the_known_classes(
    name: str,
) -> None:
    key = "spark.hadoop.fs.s3a.aws.credentials.provider"
    [problem] = application_conf_problems({key: name})
    assert name in problem.message


_AUTHORS = {  # what an author of SQL may set, and what is code
    "spark.hadoop.fs.s3a.endpoint": True,
    "spark.hadoop.fs.s3a.path.style.access": True,
    "spark.hadoop.fs.s3a.bucket.flights.endpoint": True,
    "spark.hadoop.fs.s3a.impl": True,
    "spark.hadoop.dfs.nameservices": True,
    "spark.hadoop.dfs.namenode.rpc-address.a.nn1": True,
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": True,
    "spark.hadoop.parquet.block.size": True,
    "spark.sql.catalog.lake.hadoop.fs.s3a.endpoint": True,
    "spark.sql.catalog.lake.type": True,
    "spark.hadoop.fs.s3a.buffer.dir": False,
    "spark.hadoop.fs.s3a.auth.profile.file": False,
    "spark.hadoop.fs.azure.account.oauth2.token.file.acme.dfs.core.windows.net": False,
    "spark.hadoop.google.cloud.auth.service.account.json.keyfile": False,
    "spark.hadoop.hadoop.security.group.mapping": False,
    "spark.hadoop.io.serializations": False,
    "spark.hadoop.some.key": False,
    "spark.sql.catalog.lake.hadoop.some.key": False,
}


@pytest.mark.guarantee("G-PYTHON-2")
@pytest.mark.parametrize(("key", "free"), _AUTHORS.items())
def test_a_key_of_hadoops_that_is_no_tuning_is_code(key: str, free: bool) -> None:
    given = ApplicationSpec(conf={key: "x"})
    assert application_brings_code(None, given) == ([] if free else [f"conf.{key}"])


# --- options and configuration that name files -----------------------------------------------


@pytest.mark.guarantee("G-PATH-1")
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("path", "/own/secret_key"),
        ("kafka.ssl.truststore.location", "/own/secrets/theirs.pem"),
        ("KAFKA.SSL.KEYSTORE.LOCATION", "own/secrets/theirs.pem"),
        ("kafka.sasl.oauthbearer.assertion.private.key.file", "/own/secret_key"),
        ("kafka.sasl.oauthbearer.token.endpoint.url", "file:///own/secret_key"),
        ("hoodie.base.path", "/own"),
        ("schemaFile", "/own/secret_key"),
        ("anything", "file:///own/secret_key"),
    ],
)
def test_an_option_that_names_a_file_is_held_to_the_roots(option: str, value: str) -> None:
    assert list(option_places("o", {option: value})) == [(f"o.{option}", value)]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("sep", "/"),
        ("topic", "/sensors/a"),
        ("header", "true"),
        ("kafka.ssl.truststore.certificates", "file:certificates"),
        ("kafka.sasl.oauthbearer.token.endpoint.url", "https://login.example.org/token"),
        ("es.resource.profile", "a/b"),
        ("pathGlobFilter", "*.json"),
    ],
)
def test_another_option_is_not(option: str, value: str) -> None:
    assert list(option_places("o", {option: value})) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.catalog.my-lake.warehouse", "/own"),
        ("spark.sql.catalog.lake.WAREHOUSE", "/own"),
        ("spark.sql.catalog.lake.table-override.write.data.path", "/own"),
        ("spark.storage.decommission.fallbackStorage.path", "file:///own/"),
        ("spark.python.profile.dump", "/own"),
        ("spark.kafka.clusters.a.ssl.truststore.location", "/own/theirs.pem"),
    ],
)
def test_configuration_that_names_a_place_is_held_to_the_roots(key: str, value: str) -> None:
    assert list(conf_places({key: value})) == [(f"conf.{key}", value)]
    assert list(conf_places({"spark.sql.catalog.lake.s3.path-style-access": "true"})) == []


# --- where definitions are saved and started ---------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Path:
    """Return a folder with an allowed path, and the control plane's own folder beside it."""
    for name in ("data/in", "own/secrets"):
        (tmp_path / name).mkdir(parents=True)
    settings.ALLOWED_PATHS = [str(tmp_path / "data")]
    settings.OWN_FOLDERS = [tmp_path / "own"]
    return tmp_path


def spec(home: Path, **options: str) -> dict[str, Any]:
    path = {"path": f"{home}/data/in", **options}
    return {
        "kind": "sql",
        "sources": [{"name": "f", "format": "text", "options": path}],
        "sql": "SELECT value FROM f",
        "sink": {"format": "noop"},
    }


@pytest.mark.django_db
@pytest.mark.parametrize("part", ["sources", "tables", "sink"])
def test_a_definition_that_mounts_one_folder_upon_another_is_refused(
    stage: Stage, home: Path, part: str
) -> None:
    attack, plain = spec(home, **mounted(f"{home}/data/in", f"{home}/own")), spec(home)
    if part == "tables":
        held = [{**attack["sources"][0], "name": "t"}]
        attack = {**plain, "tables": held, "sql": "SELECT f.value FROM f, t"}
    elif part == "sink":
        options = {**attack["sources"][0]["options"], "path": f"{home}/data/out"}
        attack = {**plain, "sink": {"format": "text", "options": options}}
    with pytest.raises(Invalid) as found:
        catalog.create_query(name="x", spec=attack, actor="ana", now=stage.now)
    assert {one.field.split(".options.")[1] for one in found.value.problems} == set(
        mounted(f"{home}/data/in", f"{home}/own")
    )
    catalog.create_query(name="x", spec=plain, actor="ana", now=stage.now)


CONF = {"spark.hadoop.fs.defaultFS": "viewfs://x/"}


def _sent(client: Client, door: str, attack: dict[str, Any]) -> Any:
    """Send an attack through a door, as an author of SQL alone."""
    address, api = "/api/v1/queries/delays/", "application/json"

    def rest(method: str, at: str, given: Any) -> Any:
        extra = {"HTTP_IF_MATCH": client.get(address)["ETag"]} if method == "PUT" else {}
        return client.generic(method, at, json.dumps(given), content_type=api, **extra)  # type: ignore[arg-type]

    manifest = query("new", application="flights")
    manifest["spec"] = attack
    match door:
        case "a new query":
            new = {"name": "new", "application": "flights", "spec": attack}
            return rest("POST", "/api/v1/queries/", new)
        case "a query replaced":
            return rest("PUT", address, {"spec": attack})
        case "a preflight":
            return rest("POST", f"{address}preflight/", {"spec": attack})
        case "the page of a query":
            text = json.dumps({"spec": attack})
            form = {"tab": "json", "do": "apply", "json": text}
            return client.post("/queries/delays/edit/", form)
        case "an apply":
            return rest("POST", "/api/v1/apply/", body(manifest))
        case "a deploy":
            return rest("POST", "/api/v1/deploys/", {"apply": body(manifest)})
        case "a new application":
            given = {"name": "new", "spec": {"conf": CONF}}
            return rest("POST", "/api/v1/applications/", given)
        case "an application changed":
            return rest("PATCH", "/api/v1/applications/flights/", {"spec": {"conf": CONF}})
        case "a query's own application":
            given = {"name": "new", "spec": attack, "application_spec": {"conf": CONF}}
            return rest("POST", "/api/v1/queries/", given)
        case _:
            sent = application("new", conf=CONF)
            return rest("POST", "/api/v1/apply/", body(sent))


_OF_QUERIES = ["a new query", "a query replaced", "a preflight", "the page of a query"]
_OF_QUERIES += ["an apply", "a deploy"]
_OF_APPLICATIONS = ["a new application", "an application changed", "a query's own application"]
_OF_APPLICATIONS += ["an apply of an application"]


@pytest.mark.django_db
@pytest.mark.parametrize("door", _OF_QUERIES + _OF_APPLICATIONS)
def test_every_door_refuses_it_and_keeps_nothing(
    client: Client, stage: Stage, home: Path, door: str
) -> None:
    sam = User.objects.create_user("sam")
    sam.groups.add(Group.objects.get(name="author"))
    stage.application("flights")
    stage.query("delays", "flights", **spec(home))
    client.force_login(sam)
    options = {"fs.file.impl": _VIEWFS} if door in _OF_QUERIES else {}
    answer = _sent(client, door, spec(home, **options))
    said = answer.content.decode()
    assert "fs.file.impl" in said if door in _OF_QUERIES else "fs.defaultFS" in said, said[:600]
    kept = list(QueryRevision.objects.values_list("spec", flat=True))
    kept += ApplicationRevision.objects.values_list("spec", flat=True)
    assert "viewfs" not in json.dumps(kept)


@pytest.mark.guarantee("G-CONFIG-6")
@pytest.mark.django_db
def test_a_way_back_to_a_revision_of_before_is_refused(stage: Stage, home: Path) -> None:
    row = stage.query("delays", **spec(home))
    row.revisions.update(spec=spec(home, **{"fs.file.impl": _VIEWFS}))
    later = {**spec(home), "description": "later"}
    catalog.revise_query(query=row, spec=later, expected_revision=1, actor="ana", now=stage.now)
    with pytest.raises((Invalid, NotAllowed), match="not an option of text"):
        rollback_query(query=row, revision=1, actor="ana", now=stage.now, rights=AuthorRights.SQL)


@pytest.mark.guarantee("G-PATH-7")
@pytest.mark.django_db
def test_a_definition_of_before_is_refused_at_its_start_with_what_mends_it(home: Path) -> None:
    stage = Stage(obliging=True)
    query = stage.query("delays", **spec(home))
    attack = spec(home, **{"fs.file.impl": _VIEWFS})
    query.revisions.update(spec=attack)
    stage.start("delays")
    stage.ready("delays")
    assert stage.phase("delays") == "FAILED"
    cause = Failure.objects.latest("pk").root_cause
    assert "sources.0.options.fs.file.impl: is not an option of text" in cause
    assert "Remove it" in cause


@pytest.mark.django_db
def test_an_application_of_before_is_not_launched(home: Path) -> None:
    stage = Stage()
    application = stage.application("flights")
    stage.query("delays", "flights", **spec(home))
    conf = {"spark.hadoop.fs.defaultFS": "viewfs://x/"}
    newest = application.revisions.latest("number")
    application.revisions.update(spec={**newest.spec, "conf": conf})
    stage.start("delays")
    assert not stage.launcher.living()
    row = stage.row("delays")
    assert row.application.restart_block == "FAILED"
    assert "would redirect paths" in str(row.application.restart_block_reason)


@pytest.mark.django_db
def test_a_client_of_headgates_own_opens_no_file_outside_of_the_roots(home: Path) -> None:
    brokers = (
        ("bootstrap.servers", "b:9092"),
        ("ssl.truststore.location", f"{home}/own/secrets/theirs.pem"),
    )
    assert "HEADGATE_ALLOWED_PATHS" in BrokerSecrets().refusal(brokers, "flights")
    inside = (*brokers[:1], ("ssl.truststore.location", f"{home}/data/ca.pem"))
    assert BrokerSecrets().refusal(inside, "flights") == ""


@pytest.mark.django_db
def test_what_is_refused_at_the_start_is_said_of_a_query(home: Path) -> None:
    assert query_refusal(spec(home), "x") == ""
    assert "fs.file.impl" in query_refusal(spec(home, **{"fs.file.impl": _VIEWFS}), "x")


@pytest.mark.guarantee("G-PATH-4")
def test_a_path_without_a_scheme_is_a_local_one(tmp_path: Path) -> None:
    def conf(master: str) -> dict[str, str]:
        held = replace(driver_spec(1), master=master)
        references = References(env_allowlist=(), secrets_dir="")
        return spark_session._reserved(held, DriverFolder.of(tmp_path), references)

    assert conf("local[2]")["spark.hadoop.fs.defaultFS"] == "file:///"
    assert "spark.hadoop.fs.defaultFS" not in conf("yarn")
    assert conf("yarn")["spark.sql.warehouse.dir"].startswith("file:///")  # the driver's own folder


# --- in Spark ----------------------------------------------------------------------------------

STORY = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
from queries.domain.definitions.allowed_paths import AllowedPaths
from queries.runtime import build
from queries.runtime.failures.error_capture import StepFailed
from queries.secret_references import References

home, guarded, mount = sys.argv[1], sys.argv[2] == "guarded", json.loads(sys.argv[3])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.local.dir", home + "/tmp")
if not guarded:  # nobody may set these any more
    builder = builder.config("spark.hadoop.fs.defaultFS", "viewfs://x/")
    link = f"spark.hadoop.fs.viewfs.mounttable.x.link.{home}/data/conf"
    builder = builder.config(link, f"file://{home}/own")
spark = builder.getOrCreate()
roots = AllowedPaths((f"file://{home}/data",), (f"file://{home}/own",)) if guarded else None

def source(path, **options):
    return {"name": "f", "format": "text", "options": {"path": path, **options}}

def sink(path, **options):
    return {"format": "text", "options": {"path": path, **options}}

def sql(text, *sources, out="noop"):
    to = {"format": "noop"} if out == "noop" else out
    return {"kind": "sql", "sources": list(sources), "sql": text, "sink": to,
            "trigger": {"kind": "available_now"}}

plain, all_of_f = source(f"file://{home}/data/in"), "SELECT value FROM f"
rows = {"name": "t", "format": "text", "options": {"path": f"file://{home}/data/in", **mount}}
xsd = f"'rowValidation' || 'XSDPath', '{home}/own/secret_key'"
secret = f"file://{home}/own/secret_key"
attacks = {
    "source": sql(all_of_f, source(f"file://{home}/data/in", **mount), out=sink(f"file://{home}/data/1")),
    "table": {**sql("SELECT t.value FROM f, t", plain, out=sink(f"file://{home}/data/2")),
              "tables": [rows]},
    "sink": sql(all_of_f, plain, out=sink(f"file://{home}/data/in/out", **mount)),
    "with": sql("SELECT t.value FROM f, text.`file://%s/data/in` WITH (%s) t" % (
        home, ", ".join(f"'{key}' = '{value}'" for key, value in mount.items())), plain,
        out=sink(f"file://{home}/data/3")),
    "header": sql(f"SELECT nosuch FROM f, csv.`{secret}` WITH ('header' = 'true')", plain),
    "header by identifier": sql(
        f"SELECT nosuch FROM f, IDENTIFIER('csv.`{secret}`') WITH ('header' = 'true')", plain),
    "header by a name put together": sql(
        f"SELECT nosuch FROM f, IDENTIFIER('csv.' || '`{secret}`') WITH ('header' = 'true')",
        plain),
    "from_xml": sql(f"SELECT from_xml(value, 'a INT', map({xsd})) FROM f", plain),
    "from_xml in a window": sql(
        "SELECT (SELECT max(n) FROM (SELECT count(*) OVER w AS n FROM VALUES ('<a/>') AS v(x) "
        f"WINDOW w AS (PARTITION BY from_xml(x, 'a INT', map({xsd}))))) FROM f", plain),
    "schema_of_xml": sql(
        f"SELECT schema_of_xml('<a/>', map('rowValidationXSDPath', '{secret}')) FROM f", plain),
    "by identifier": sql(
        f"SELECT IDENTIFIER('from_xml')(value, 'a INT', map({xsd})) FROM f", plain),
    "xml": sql(
        f"SELECT x.* FROM f, xml.`file://{home}/data/xml` WITH ('rowTag' = 'a', "
        f"'rowValidationXSDPath' = '{secret}') x", plain),
    "avro": sql(f"SELECT from_avro(value, '', map('avroSchemaUrl', '{secret}')) FROM f", plain),
    "protobuf": sql(f"SELECT from_protobuf(value, 'm', '{secret}') FROM f", plain),
    "fine": sql(
        "SELECT from_xml(f.value, 'a INT', map('rowTag', 'a')), IDENTIFIER('f.value') "
        f"FROM f, csv.`file://{home}/data/in` WITH ('header' = 'false') t, "
        f"IDENTIFIER('text.`file://{home}/data/in`')", plain),
}
if not guarded:
    attacks["conf"] = sql(all_of_f, source(f"{home}/data/conf"), out=sink(f"file://{home}/data/4"))
found = {}
for number, (name, raw) in enumerate(attacks.items()):
    try:
        built = build.writer(
            spark, raw, name="x", checkpoint=f"file://{home}/c{number}",
            references=References(env_allowlist=(), secrets_dir=""), roots=roots,
        )
        found[name] = ""
    except StepFailed as error:
        found[name] = str(error.__cause__ or error)[:1500]
        continue
    if name in ("source", "table", "sink", "with", "conf"):
        built.start().awaitTermination()
read = {}
for place in ("1", "2", "3", "4"):
    parts = Path(home, "data", place).glob("part-*")
    read[place] = "".join(part.read_text() for part in parts)
written = [str(part) for part in Path(home, "own").glob("out/part-*")]
sys.stdout.write(json.dumps({"said": found, "read": read, "written": written}) + "\\n")
sys.stdout.flush()
spark.sparkContext._gateway.proc.kill()
os._exit(0)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, java_home: str) -> dict[str, Any]:
    """Return what comes of each attack, with the guards and without them."""
    found = {}
    for mode in ("guarded", "open"):
        home = tmp_path_factory.mktemp(mode)
        for name in ("data/in", "data/xml", "data/conf", "own"):
            (home / name).mkdir(parents=True)
        (home / "own/secret_key").write_text("the-key\n")
        (home / "data/in/one.txt").write_text("a flight\n")
        (home / "data/xml/one.xml").write_text("<r><a>1</a></r>\n")
        (home / "story.py").write_text(STORY)
        mount = mounted(f"{home}/data/in", f"{home}/own")
        done = subprocess.run(
            [sys.executable, str(home / "story.py"), str(home), mode, json.dumps(mount)],
            cwd=REPOSITORY,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        found[mode] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.guarantee("G-PATH-4")
@pytest.mark.spark
@pytest.mark.parametrize(("attack", "place"), [("source", "1"), ("table", "2"), ("with", "3")])
def test_no_option_has_spark_read_another_folder(
    told: dict[str, Any], attack: str, place: str
) -> None:
    assert "the-key" in told["open"]["read"][place]  # without the guard it does
    assert "Hadoop" in told["guarded"]["said"][attack]
    assert "the-key" not in told["guarded"]["read"][place]


@pytest.mark.spark
def test_no_option_has_spark_write_to_another_folder(told: dict[str, Any]) -> None:
    assert told["open"]["written"]
    assert "Hadoop" in told["guarded"]["said"]["sink"]
    assert told["guarded"]["written"] == []


@pytest.mark.spark
def test_hadoops_default_file_system_would_have_read_another_folder(told: dict[str, Any]) -> None:
    assert "the-key" in told["open"]["read"]["4"]


@pytest.mark.guarantee("G-PATH-5")
@pytest.mark.spark
@pytest.mark.parametrize(
    ("attack", "words"),
    [
        ("header", "HEADGATE_ALLOWED_PATHS"),
        ("header by identifier", "HEADGATE_ALLOWED_PATHS"),
        ("header by a name put together", "IDENTIFIER"),
    ],
)
def test_an_error_of_the_analysis_shows_no_line_of_a_file(
    told: dict[str, Any], attack: str, words: str
) -> None:
    assert "the-key" in told["open"]["said"][attack]  # Spark proposes the columns that there are
    assert words in told["guarded"]["said"][attack]
    assert "the-key" not in told["guarded"]["said"][attack]


@pytest.mark.guarantee("G-PATH-5")
@pytest.mark.spark
@pytest.mark.parametrize(
    "attack",
    ["from_xml", "from_xml in a window", "schema_of_xml", "by identifier", "xml", "avro"]
    + ["protobuf"],
)
def test_no_function_is_given_a_file_to_open(told: dict[str, Any], attack: str) -> None:
    assert "OutsideRoots" not in told["open"]["said"][attack]
    said = told["guarded"]["said"][attack]
    assert (
        "from_xml" in said
        or "option" in said
        or "IDENTIFIER" in said
        or "HEADGATE_ALLOWED_PATHS" in said
    )
    assert said != told["open"]["said"][attack]


@pytest.mark.spark
def test_options_and_files_in_the_roots_are_taken(told: dict[str, Any]) -> None:
    assert told["guarded"]["said"]["fine"] == ""
