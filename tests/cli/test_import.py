"""`headgate import`: from the ways in which people start jobs today to manifests."""

import importlib.util
import json
import shlex
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from queries.models.applications import Application
from tests.cli.conftest import SOURCE, Shell

CASES = Path(__file__).parent / "imports"
BASE = Path(settings.BASE_DIR)

if str(SOURCE) not in sys.path:  # the command is a distribution of its own
    sys.path.append(str(SOURCE))

from headgate_cli.imports import rules, sources  # noqa: E402
from headgate_cli.imports.report import ImportedJob  # noqa: E402
from headgate_cli.output import CommandEnded  # noqa: E402


def imported(name: str) -> tuple[ImportedJob, list[str]]:
    """Return the job of a case, and its report with the rest of the file's."""
    jobs, rest = sources.jobs_in(name, (CASES / name).read_text())
    assert len(jobs) == 1
    return jobs[0], [str(entry) for entry in (*jobs[0].entries, *rest)]


def line(text: str) -> ImportedJob:
    """Return the job of one command."""
    return sources.jobs_in("line", text)[0][0]


def test_a_shell_script_becomes_an_application_that_runs_the_same_program() -> None:
    job, report = imported("kafka-to-delta.sh")
    assert job.name == "order-totals"
    assert job.spec == {
        "kind": "script",
        "spark": "3.5",
        "master": "yarn",
        "memory": "4g",
        "connectors": ["delta", "kafka"],
        "python_path": ["/opt/jobs"],
        "script": {
            "file": "/opt/jobs/totals.py",
            "arguments": ["--brokers", "${values.BROKERS}", "--day", "${values.DATE_F}"],
            "submit": {
                "executor_memory": "8g",
                "num_executors": 10,
                "py_files": ["/opt/jobs/lib.zip"],
            },
        },
        "conf": {
            "spark.yarn.queue": "streaming",
            "spark.sql.shuffle.partitions": "${values.PARTITIONS}",
            "spark.hadoop.fs.s3a.secret.key": "env:SPARK_HADOOP_FS_S3A_SECRET_KEY",
            "spark.hadoop.fs.s3a.access.key": "env:AWS_KEY",
        },
    }
    assert job.parameters == {
        "BROKERS": "kafka-1:9092,kafka-2:9092",
        "DATE_F": "",
        "PARTITIONS": "200",
    }
    text = "\n".join(report)
    assert "not taken over: com.example:geo:1.0: There is no connector for it" in text
    assert "not taken over: line 5: cd /opt/jobs: Headgate runs no shell." in text
    assert "hunter2" not in text
    assert "wJalrXUtnFEMI" not in text


def test_a_unit_of_systemd_becomes_an_application_with_its_environment() -> None:
    job, report = imported("clicks.service")
    assert job.spec["master"] == "spark://head:7077"
    assert job.spec["script"]["submit"] == {"executor_memory": "2g"}
    assert job.spec["script"]["file"] == "clicks.py"
    assert job.spec["script"]["arguments"] == ["--topic", "clicks;late"]
    assert job.spec["code"] == {"upload": "./code"}
    assert job.spec["env"] == {
        "STAGE": "production",
        "REGION": "eu west",
        "DB_PASSWORD": "env:DB_PASSWORD",
    }
    text = "\n".join(report)
    assert "spark.executor.memory=4g: --executor-memory decides." in text
    assert "not taken over: Restart=always: Headgate restarts a failed script" in text
    assert "hunter2" not in text


def test_a_scheduled_application_of_kubernetes_keeps_its_time() -> None:
    job, report = imported("nightly.yaml")
    assert job.name == "nightly-report"
    assert job.spec["schedule"] == {
        "cron": "15 2 * * *",
        "time_zone": "Europe/Berlin",
        "overlap": "skip",
    }
    assert job.spec["spark"] == "4.1"
    assert job.spec["connectors"] == ["s3"]
    assert job.spec["memory"] == "2g"
    assert job.spec["env"] == {"STAGE": "production", "TOKEN": "env:TOKEN"}
    assert job.spec["conf"] == {
        "spark.sql.shuffle.partitions": "64",
        "spark.hadoop.fs.s3a.secret.key": "env:SPARK_HADOOP_FS_S3A_SECRET_KEY",
    }
    text = "\n".join(report)
    assert "restartPolicy.type: OnFailure: Headgate restarts a failed script" in text
    assert "driver.env: TOKEN from secretKeyRef report token (an admin binds" in text
    assert "ConfigMap: Only objects of the Spark operator" in text
    assert "wJalrXUtnFEMI" not in text


def test_a_jar_is_named_as_not_supported() -> None:
    job, report = imported("scala.yaml")
    assert not job.is_runnable
    assert any("Jars of Scala and Java are not supported." in entry for entry in report)
    assert any("Headgate runs Spark 3.5, 4.0, 4.1, 4.2, 4.3" in entry for entry in report)


@pytest.mark.parametrize("name", sorted(path.name for path in CASES.glob("*.yaml")))
def test_every_leaf_of_a_manifest_is_in_the_report_once(name: str) -> None:
    _, report = imported(name)
    text = "\n".join(report)
    for document in list(yaml.safe_load_all((CASES / name).read_text()))[:1]:
        for key, value in leaves(document):
            if value == "wJalrXUtnFEMI":
                assert f"{key}=••••••" in text
            else:
                assert text.count(str(value).lower()) + text.count(str(value)) >= 1, (key, value)


def leaves(value: Any, key: str = "") -> list[tuple[str, Any]]:
    """Return each leaf of a document with the key that holds it."""
    if isinstance(value, dict):
        return [leaf for name, part in value.items() for leaf in leaves(part, name)]
    if isinstance(value, list):
        return [leaf for part in value for leaf in leaves(part, key)]
    return [(key, value)]


WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12
).filter(lambda text: "," not in text and "=" not in text and not text.startswith("-"))
PAIRS = st.one_of(
    st.tuples(st.just("--conf"), st.builds("spark.sql.{}={}".format, st.just("x"), WORDS)),
    st.tuples(st.just("--conf"), WORDS),
    st.tuples(
        st.sampled_from(["--master", "--driver-memory", "--jars", "--files", "--queue", "--class"]),
        WORDS,
    ),
    st.tuples(st.sampled_from(["--verbose", "--supervise", "--unknown"])),
)


@given(st.lists(PAIRS, max_size=6), st.lists(WORDS, max_size=4))
def test_every_word_of_a_command_is_in_the_report_once(
    options: list[tuple[str, ...]], arguments: list[str]
) -> None:
    words = [word for option in options for word in option]
    quoted = [shlex.quote(word) for word in ["spark-submit", *words, "/srv/job.py", *arguments]]
    job = line(" ".join(quoted))
    tokens = Counter(token for entry in job.entries for token in entry.tokens)
    assert tokens == Counter(quoted)


SECRET = st.from_regex(r"[A-Za-z0-9]{12}", fullmatch=True)


@given(SECRET, st.sampled_from(["'{}'", '"{}"', "{}"]))
def test_no_secret_is_in_a_manifest_or_in_a_report(secret: str, quotes: str) -> None:
    value = quotes.format(secret)
    job = line(
        f"DB_PASSWORD={value} spark-submit --conf spark.hadoop.fs.s3a.secret.key={value} "
        f"--conf spark.foo.password={value} --conf spark.sql.x=jdbc:a://u:{secret}@host/db "
        f"/srv/job.py --token {value} --api-key={value} http://u:{secret}@host"
    )
    assert secret not in json.dumps(job.manifest())
    assert secret not in "\n".join(map(str, job.entries))
    assert secret not in repr(job.defaults)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (r"spark-submit /j.py 'a b' c\ d", ["a b", "c d"]),
        ("spark-submit /j.py a \\\n  b # c", ["a", "b"]),
        ("spark-submit /j.py '$HOME' \"$HOME/x\"", ["$HOME", "${values.HOME}/x"]),
        ("spark-submit /j.py ${A:-b} `date`", ["${values.A}", "${values.DATE}"]),
        ("spark-submit /j.py $'a\\tb' && echo done", ["a\tb"]),
        ("cat <<X | spark-submit /j.py\nspark-submit /other.py\nX\n", []),
    ],
)
def test_words_are_those_of_a_shell(text: str, arguments: list[str]) -> None:
    jobs, _ = sources.jobs_in("line", text)
    assert [job.spec["script"].get("arguments", []) for job in jobs] == [arguments]


@pytest.mark.parametrize(
    ("command", "spec"),
    [
        # A word that only a shell can expand may hold options; a literal one is expanded.
        (
            'O="--driver-memory 2g --queue q"\nspark-submit $O /j.py',
            {"memory": "2g", "conf": {"spark.yarn.queue": "q"}},
        ),
        ('spark-submit "${CONF[@]}" --driver-memory 2g /j.py', {"memory": "2g"}),
        ("spark-submit --new-option value --driver-memory 2g /j.py", {"memory": "2g"}),
        ("spark-submit --driver-memory\\\n 2g /j.py", {"memory": "2g"}),
        ("exec > >(tee -a log) 2>&1\nspark-submit --driver-memory 2g /j.py", {"memory": "2g"}),
        ('spark-submit --name "$(echo "$(date)")" --driver-memory 2g /j.py', {"memory": "2g"}),
    ],
)
def test_what_people_write_around_options_loses_none(command: str, spec: dict[str, Any]) -> None:
    job = line(command)
    assert job.spec["script"]["file"] == "/j.py"
    assert {key: job.spec.get(key) for key in spec} == spec


def test_a_comment_within_a_setting_of_a_unit_is_none_of_its_words() -> None:
    unit = (
        "[Service]\nEnvironment=TOPIC=a\nExecStart=spark-submit \\\n"
        "# tuned\n  --driver-memory 2g \\\n  /j.py --topic $TOPIC --rate 100%%\n"
    )
    jobs, rest = sources.jobs_in("unit", unit)
    assert jobs[0].spec["script"]["arguments"] == ["--topic", "${values.TOPIC}", "--rate", "100%"]
    assert jobs[0].parameters == {"TOPIC": "a"}
    assert any("# tuned" in str(entry) for entry in rest)


@pytest.mark.parametrize(
    "text",
    [
        "P=hunter2secret\nspark-submit /j.py --password $P",
        'spark-submit /j.py --pw "${Q:-hunter2secret}"',
        "spark-submit /j.py -p hunter2secret hunter2secret",
        "spark-submit /j.py --dsn https://hunter2secret@sentry.example/42",
        "spark-submit /j.py postgres://etl:hunter2secret@host hunter2secret",
        "spark-submit --conf spark.redis.auth=hunter2secret /j.py",
        "spark-submit app.jar --db-pass hunter2secret",
        "C='host=h;password=hunter2secret'\nspark-submit /j.py $C",
        "curl https://hooks.slack.com/services/hunter2secret\nspark-submit /j.py",
        "kind: SparkApplication\nmetadata: {name: a}\nspec:\n  mainApplicationFile: local:///j.py\n"
        "  executor: {env: [{name: DB_PASSWORD, value: hunter2secret}]}\n",
    ],
)
def test_a_secret_is_found_wherever_people_put_it(text: str) -> None:
    jobs, rest = sources.jobs_in("line", text)
    for job in jobs:
        assert "hunter2secret" not in json.dumps([job.manifest(), job.parameters])
        assert "hunter2secret" not in "\n".join(map(str, job.entries))
    assert "hunter2secret" not in "\n".join(map(str, rest))


def test_a_parameter_that_names_a_secret_is_no_argument() -> None:
    job = line("spark-submit /j.py --kafka-password $KAFKA_PASSWORD --day $DAY $DB_TOKEN")
    assert job.spec["script"]["arguments"] == ["--day", "${values.DAY}"]


def jobs(text: str) -> list[ImportedJob]:
    """Return the jobs in a text."""
    return sources.jobs_in("file", text)[0]


STEPS = """aws emr create-cluster --name lake --release-label {release} --applications Name=Spark \\
  --steps Type=Spark,Name="Hourly Rides",ActionOnFailure=CONTINUE,Args=[--deploy-mode,cluster,\\
--conf,spark.sql.shuffle.partitions=9,s3://acme/rides.py,--out,s3://acme/rides]
"""


def test_a_step_of_emr_becomes_an_application_on_yarn() -> None:
    [job] = jobs(STEPS.format(release="emr-7.9.0"))
    assert job.name == "hourly-rides"
    assert job.spec == {
        "kind": "script",
        "spark": "3.5",
        "master": "yarn",
        "conf": {"spark.sql.shuffle.partitions": "9"},
        "code": {"upload": "./code"},
        "script": {"file": "rides.py", "arguments": ["--out", "s3a://acme/rides"]},
    }
    report = [str(entry) for entry in job.entries]
    assert "spec.master: master: yarn (EMR's default)" in report
    assert "spec.script.arguments: s3://acme/rides (as s3a://, which Hadoop knows)" in report
    assert any(line.startswith("not taken over: name: lake: It belongs to EMR") for line in report)


@pytest.mark.parametrize(
    ("release", "spark"),
    [("emr-7.0.0", "3.5"), ("emr-7.13.0", "3.5"), ("emr-spark-8.0.0", "4.0"), ("emr-6.15.0", "")],
)
def test_a_release_of_emr_decides_the_version_of_spark(release: str, spark: str) -> None:
    [job] = jobs(STEPS.format(release=release))
    assert job.spec.get("spark", "") == spark
    named = any("Headgate runs Spark 3.5" in entry.reason for entry in job.entries)
    assert named == (not spark)


def test_json_of_emr_is_read_like_its_commands() -> None:
    arguments = ["spark-submit", "--master", "yarn", "s3://acme/a.py", "--api-key", "hunter2secret"]
    step = {"Name": "a", "HadoopJarStep": {"Jar": "command-runner.jar", "Args": arguments}}
    copy = {"Name": "b", "Jar": "command-runner.jar", "Args": ["s3-dist-cp", "--src", "x"]}
    defaults = {
        "Classification": "spark-defaults",
        "Properties": {"spark.executor.memory": "4g", "spark.x.password": "hunter3secret"},
    }
    request = {"ReleaseLabel": "emr-7.1.0", "Steps": [step, copy], "Configurations": [defaults]}
    text = json.dumps(request)
    first, second = jobs(text)
    assert first.spec["spark"] == "3.5"
    assert first.spec["script"] == {"file": "a.py", "submit": {"executor_memory": "4g"}}
    assert not second.is_runnable
    assert "hunter" not in json.dumps(first.manifest()) + "".join(map(str, first.entries))
    assert [job.name for job in jobs(json.dumps([step, copy]))] == ["a", "b"]
    [served] = jobs(
        'aws emr-serverless start-job-run --name rides --job-driver \'{"sparkSubmit": {'
        '"entryPoint": "s3://\'$BUCKET\'/r.py", "entryPointArguments": ["--day", "\'$DAY\'"],'
        '"sparkSubmitParameters": "--conf spark.driver.memory=3g --packages a:b:1"}}\''
    )
    assert served.spec["memory"] == "3g"
    assert served.spec["script"] == {"file": "r.py", "arguments": ["--day", "${values.DAY}"]}
    assert "master" not in served.spec


def test_steps_in_a_file_of_their_own_are_asked_for() -> None:
    [job] = jobs("aws emr add-steps --cluster-id j-1 --steps file://steps.json")
    assert not job.is_runnable
    assert any("import files by themselves" in entry.reason for entry in job.entries)


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("ssh host <<'END'\nA=1\nspark-submit /one.py $A\nEND\nspark-submit /two.py\n", "one two"),
        ("ID=$(spark-submit /one.py | grep id)\n", "one"),
        ('echo "started $(spark-submit /one.py)"\n', "one"),
        ("cat > x.service <<E\n[Service]\nExecStart=spark-submit /one.py\nE\n", "one"),
        (
            "kubectl apply -f - <<E\nkind: SparkApplication\nmetadata: {name: a}\n"
            "spec: {mainApplicationFile: 'file:///one.py'}\nE\n",
            "one",
        ),
        ("cat <<E\nUsage: spark-submit /no.py\nE\nspark-submit /one.py\n", "one"),
    ],
)
def test_commands_in_here_documents_and_substitutions_are_found(text: str, files: str) -> None:
    found, rest = sources.jobs_in("file", text)
    assert [job.spec["script"]["file"] for job in found] == [
        f"/{name}.py" for name in files.split()
    ]
    tokens = [token for job in found for entry in job.entries for token in entry.tokens]
    others = " ".join(token for entry in rest for token in entry.tokens)
    assert sum("/one.py" in token for token in tokens) == 1
    assert "/one.py" not in others


def test_specifiers_of_a_unit_are_parameters() -> None:
    [job] = jobs(
        "[Service]\nEnvironment=FILE=%h/%i.json\n"
        "ExecStart=spark-submit --name '%i' /srv/%i.py --user %u --share 5%%\n"
    )
    assert job.spec["env"] == {"FILE": "${values.HOME}/${values.INSTANCE}.json"}
    assert job.spec["script"]["file"] == "/srv/${values.INSTANCE}.py"
    assert job.spec["script"]["arguments"] == ["--user", "${values.USER}", "--share", "5%"]
    assert set(job.parameters) == {"HOME", "INSTANCE", "USER"}


def test_a_catalog_of_a_service_is_an_admins() -> None:
    prefix = "--conf spark.sql.catalog."
    job = line(
        f"spark-submit {prefix}lake=org.apache.iceberg.spark.SparkCatalog {prefix}lake.type=rest "
        f"{prefix}lake.uri=https://rest {prefix}lake.io-impl=a.B "
        f"{prefix}lake.credential=hunter2secret {prefix}lake.header.X-Auth=hunter2secret "
        f"{prefix}disk=org.apache.iceberg.spark.SparkCatalog {prefix}disk.type=hadoop "
        f"{prefix}spark_catalog.type=hive {prefix}old.type=glue /j.py"
    )
    assert job.spec["catalogs"] == ["lake"]
    assert job.spec["connectors"] == ["iceberg"]
    assert set(job.spec["conf"]) == {"spark.sql.catalog.disk", "spark.sql.catalog.disk.type"}
    report = "\n".join(map(str, job.entries))
    assert "spark.sql.catalog.lake.uri=https://rest" in report
    admin = "Ask an admin to declare the catalog lake with these settings"
    assert f"spark.sql.catalog.lake.uri=https://rest: {admin}" in report
    assert "not taken over: --conf spark.sql.catalog.lake.type=rest" in report
    assert "spec.catalogs: --conf spark.sql.catalog.lake=org" in report
    assert "lake.credential=••••••: A secret that an admin binds to the catalog lake" in report
    assert "lake.header.X-Auth=••••••: It holds a secret for which a declared" in report
    assert "lake.io-impl=a.B: A class, which no catalog can set: leave it out" in report
    assert "spark.sql.catalog.spark_catalog.type=hive: spark_catalog stays Spark's own" in report
    assert "spark.sql.catalog.old.type=glue: Only catalogs of type hadoop and rest" in report
    assert "hunter2secret" not in report


def test_a_short_secret_is_masked_as_a_word_and_not_within_paths() -> None:
    job = line("PASSWORD=test spark-submit --name a /opt/test/latest.py test x=test /data/test")
    assert job.spec["script"] == {"file": "/opt/test/latest.py", "arguments": ["/data/test"]}
    report = "\n".join(map(str, job.entries))
    assert "PASSWORD=••••••" in report
    assert report.count("not taken over: ••••••: Arguments cannot hold secrets") == 2


def test_known_variables_are_resolved_where_parameters_have_no_place() -> None:
    job = line(
        "P=org.apache.spark:spark-avro_2.12:3.5.1\nJOB=${2:-s3://acme/a.py}\n"
        'spark-submit --packages "$P" "$JOB"\n'
    )
    assert job.spec["connectors"] == ["avro"]
    assert job.spec["spark"] == "3.5"
    assert job.spec["script"]["file"] == "a.py"
    unknown = line("spark-submit $1")
    assert any("It is a variable" in entry.reason for entry in unknown.entries)


def test_two_values_of_one_secret_are_two_secrets(shell: Shell) -> None:
    (shell.folder / "run.sh").write_text(
        "TOKEN=hunter2secret spark-submit /one.py\n"
        "TOKEN=hunter2secret spark-submit /two.py\n"
        "TOKEN=hunter3secret spark-submit /three.py\n"
    )
    done = shell("import", "run.sh")
    one, two, three = yaml.safe_load_all(done.out)
    assert one["spec"]["env"] == two["spec"]["env"] == {"TOKEN": "env:TOKEN"}
    assert three["spec"]["env"] == {"TOKEN": "env:TOKEN_2"}
    assert "three: its env:TOKEN has another value, so it is env:TOKEN_2 there." in done.err
    assert "hunter" not in done.out + done.err


def test_stdin_has_the_limit_of_files(shell: Shell) -> None:
    job = "spark-submit /j.py\n"
    assert "file: /j.py" in shell("import", "-", stdin=job).out
    too_long = job + "#" * 1024 * 1024
    assert "- is larger than 1 MiB." in shell("import", "-", stdin=too_long, code=1).err
    (shell.folder / "run.sh").write_text(too_long)
    assert "run.sh is larger than 1 MiB." in shell("import", "run.sh", code=1).err


ARGUMENTS = st.lists(
    st.text("abcXYZ019._-/:=", min_size=1, max_size=8).filter(lambda text: text[0] != "-"),
    max_size=5,
)


@given(ARGUMENTS, st.booleans())
def test_every_argument_of_a_step_is_in_the_report_once(values: list[str], as_json: bool) -> None:
    words = ["/srv/job.py", *values]
    step = {"Type": "Spark", "Name": "n", "Args": words}
    short = shlex.quote(f"Type=Spark,Name=n,Args=[{','.join(words)}]")
    text = json.dumps([step]) if as_json else f"aws emr add-steps --cluster-id j --steps {short}"
    [job] = jobs(text)
    tokens = Counter(token for entry in job.entries for token in entry.tokens)
    assert Counter(words) <= tokens
    others = tokens - Counter(words)
    assert set(others) <= {
        "Type: Spark",
        "Name: n",
        "master: yarn",
        "command: aws emr add-steps",
        "cluster-id: j",
    }
    assert set(others.values()) == {1}


def test_no_job_is_run_and_nothing_is_sent(shell: Shell) -> None:
    (shell.folder / "run.sh").write_text(
        "touch $(touch substituted; echo ran)\nspark-submit /j.py `touch quoted`\n"
    )
    shell.env["HEADGATE_URL"] = "http://127.0.0.1:1"
    assert "file: /j.py" in shell("import", "run.sh").out
    assert sorted(path.name for path in shell.folder.glob("*") if path.is_file()) == ["run.sh"]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("CRON_TZ=America/New_York 0 6 * * SUN", "0 6 * * SUN America/New_York"),
        ("@daily", "0 0 * * *"),
        ("@every 10m", "*/10 * * * *"),
        ("@every 7m", ""),
    ],
)
def test_a_time_becomes_five_fields_where_they_can_express_it(schedule: str, expected: str) -> None:
    text = (
        "kind: List\nitems:\n- kind: ScheduledSparkApplication\n  metadata: {name: a}\n"
        f"  spec: {{schedule: '{schedule}', template: {{mainApplicationFile: 'local:///j.py'}}}}\n"
    )
    [job], _ = sources.jobs_in("list", text)
    times = job.spec.get("schedule", {})
    assert " ".join(filter(None, (times.get("cron"), times.get("time_zone")))) == expected


def test_jobs_that_cannot_be_imported_are_counted_and_values_do_not_mix(shell: Shell) -> None:
    (shell.folder / "run.sh").write_text(
        "TOPIC=a\nspark-submit s3a://x/one.py $TOPIC\n"
        "TOPIC=b\nspark-submit s3a://x/two.py $TOPIC\nspark-submit app.jar\n"
    )
    (shell.folder / "jobs").mkdir()
    (shell.folder / "jobs" / "one.yaml").write_bytes(b"\xff")
    assert "one.yaml exists" in shell("import", "run.sh", "--to", "jobs", code=1).err
    (shell.folder / "jobs" / "one.yaml").unlink()
    done = shell("import", "run.sh", "--to", "jobs", code=1)
    assert "1 of 3 jobs cannot be imported" in done.err
    assert "TOPIC differs between the jobs" in done.err
    assert yaml.safe_load((shell.folder / "jobs" / "values").read_text()) == {"TOPIC": ""}
    assert sorted(path.name for path in (shell.folder / "jobs").iterdir()) == [
        "one.yaml",
        "two.yaml",
        "values",
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            "kind: SparkApplication\nspec: {mainApplicationFile: a.py, deps: {jars: 5}}",
            "does not have the form of the Spark operator",
        ),
        ("spark-submit /j.py 'a", "Line 1: the quote ' is not closed."),
        ("echo hello", "contains no spark-submit command"),
        ("kind: SparkApplication\nspec: [", "is not valid YAML"),
    ],
)
def test_what_cannot_be_read_is_rejected(text: str, part: str) -> None:
    with pytest.raises(CommandEnded) as ended:
        sources.jobs_in("line", text)
    assert part in str(ended.value.message)


def test_the_rules_are_those_of_the_server() -> None:
    generator = module(BASE / "bootstrap" / "import_rules.py")
    assert generator.FILE.read_text() == generator.text(), "run bootstrap/import_rules.py"
    connectors = {path.parent.name for path in BASE.glob("connectors/*/connector.toml")}
    assert set(rules.RULES.replaced["connectors"].values()) <= connectors


def module(path: Path) -> ModuleType:
    """Return a module of the set-up, which is not a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_an_imported_job_is_applied_after_its_difference(shell: Shell) -> None:
    code = shell.folder / "jobs" / "code" / "job.py"
    code.parent.mkdir(parents=True)
    code.write_text("print('hello')\n")
    (shell.folder / "run.sh").write_text(
        "spark-submit --name Daily --driver-memory 2g s3a://jobs/job.py --day $DAY\n"
    )
    shell("import", "run.sh", "--apply", code=1)
    apply = ("import", "run.sh", "--to", "jobs", "--apply", "--owner", "data", "--set", "DAY=1")
    shell(*apply, stdin="n\n", code=130)
    assert not Application.objects.exists()
    done = shell(*apply, stdin="y\n")
    assert "created       Application daily" in done.out
    assert "parameter to fill in: DAY" in done.err
    revision = Application.objects.get(name="daily").revisions.get()
    assert revision.spec["script"]["arguments"] == ["--day", "1"]
    assert yaml.safe_load((shell.folder / "jobs" / "values").read_text()) == {"DAY": ""}
    assert "1 unchanged" in shell(*apply).out


def test_paths_in_emrs_spelling_become_hadoops_and_the_report_shows_each() -> None:
    [job], _ = sources.jobs_in(
        "run.sh",
        "OUT=s3://lake/out\nspark-submit --conf spark.eventLog.dir=s3://lake/events "
        "s3://lake/job.py s3://lake/in --to=S3://lake/b $OUT\n",
    )
    assert job.spec["conf"] == {
        "spark.eventLog.dir": "s3a://lake/events",
    }
    arguments = job.spec["script"]["arguments"]
    assert arguments == ["s3a://lake/in", "--to=s3a://lake/b", "${values.OUT}"]
    assert job.parameters == {"OUT": "s3a://lake/out"}
    shown = [str(entry) for entry in job.entries if "which Hadoop knows" in str(entry)]
    assert [line.partition(":")[0] for line in shown] == [
        "spec.conf.spark.eventLog.dir",
        "spec.script.arguments",
        "spec.script.arguments",
        "values.OUT",
    ]


def everything(text: str) -> str:
    """Return all that an import of a text would print or write."""
    found, rest = sources.jobs_in("file", text)
    written = [json.dumps([job.manifest(), job.parameters, job.name]) for job in found]
    return "\n".join(
        [*written, *(str(one) for job in found for one in job.entries), *map(str, rest)]
    )


OPERATOR = (
    "kind: SparkApplication\nmetadata: {{name: a{metadata}}}\n"
    "spec: {{mainApplicationFile: local:///j.py, driver: {{{driver}}}}}\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "spark-submit --conf spark.hadoop.my.pw=hunter2 /j.py",
        "spark-submit --conf spark.other.pw=hunter2 /j.py",
        "DB_PW=hunter2 spark-submit /j.py",
        "export DB_PW=hunter2\nspark-submit /j.py",
        "export P=hunter2\nspark-submit /j.py",
        "[Service]\nEnvironment=DB_PW=hunter2\nExecStart=spark-submit /j.py\n",
        "spark-submit --conf 'spark.hadoop.x=Bearer hunter2' /j.py",
        "HEADER='Basic hunter2' spark-submit /j.py --header 'Authorization: Bearer hunter2'",
        "spark-submit /j.py -H Authorization: Bearer hunter2",
        "H='Bearer hunter2'\nspark-submit /j.py $H",
        OPERATOR.format(metadata="", driver="sidecars: [{args: [--key, hunter2]}]"),
        OPERATOR.format(metadata="", driver="sidecars: [{args: [--password, hunter2, x]}]"),
        OPERATOR.format(
            metadata="", driver="initContainers: [{command: [curl, -u, 'me:hunter2']}]"
        ),
        OPERATOR.format(metadata="", driver="x: {command: [sh, -c, 'echo hunter2 | login']}"),
        OPERATOR.format(metadata="", driver="x: {args: [-H, 'Authorization: Bearer hunter2']}"),
        OPERATOR.format(
            metadata=", annotations: {kubectl.kubernetes.io/last-applied-configuration: "
            '\'[{"name": "DB", "value": "hunter2"}]\'}',
            driver="",
        ),
        "curl -u me:hunter2 https://vault\nspark-submit /j.py",
        "mysql -phunter2\necho hunter2 | login\nX=hunter2\nspark-submit /j.py",
        "if [ $1 = hunter2 ]; then\nlogin <<< hunter2\nfi\nspark-submit /j.py",
        "login <<END\nhunter2\nEND\nspark-submit /j.py",
        "ssh host 'spark-submit /k.py hunter2'\nspark-submit /j.py",
        "sshpass -p hunter2 ssh host spark-submit /j.py",
        "spark-submit /j.py --day $(curl -u me:hunter2 https://clock)",
        "[Service]\nExecStartPre=/bin/mysql -phunter2\nExecStart=spark-submit /j.py\n",
    ],
)
def test_no_secret_leaks_from_where_a_stranger_put_it(text: str) -> None:
    assert "hunter2" not in everything(text).lower()


def test_a_line_of_no_job_shows_its_command_and_what_is_harmless() -> None:
    _, rest = sources.jobs_in("file", "cd /srv\nfoo --x y\nif curl z; then\nspark-submit /j.py\nfi")
    report = [str(entry) for entry in rest]
    assert report[0].startswith("not taken over: line 1: cd /srv: ")
    assert report[1].startswith("not taken over: line 2: foo ••••••: ")
    assert report[2].startswith("not taken over: line 3: if curl •••••• ;: ")


def report_of(text: str) -> str:
    """Return the report on all that a text contains."""
    found, rest = sources.jobs_in("file", text)
    return "\n".join(map(str, [entry for job in found for entry in job.entries] + rest))


@pytest.mark.parametrize(
    "lines",
    [
        "if [ $1 = prod ]; then\n  M=8g\nfi\n",
        "if a; then M=8g; else M=4g; fi\n",
        "case $1 in\n  prod) export M=8g ;;\nesac\n",
        "while read x; do M=8g; done < list\n",
        "for M in 2g 8g; do echo; done\n",
        "[ $1 = prod ] && M=8g\n",
    ],
)
def test_a_value_set_under_a_condition_is_no_known_value(lines: str) -> None:
    text = f"M=2g\n{lines}spark-submit --driver-memory $M /j.py ${{M:-1g}}\n"
    job = line(text)
    assert job.spec["memory"] == "${values.M}"
    assert job.parameters == {"M": ""}
    assert "8g" not in json.dumps(job.manifest())
    assert "line 1: M=2g: A later line may replace it: which value" in report_of(text)
    more = lines.replace("8g", "--conf\\ spark.sql.x=1")
    options = line(f"{more}spark-submit $M /j.py\n")
    assert "conf" not in options.spec
    assert any("It may contain options" in entry.reason for entry in options.entries)
    assert line(f"{lines}M=3g\nspark-submit --driver-memory $M /j.py").parameters == {"M": "3g"}


def test_a_value_after_a_job_or_added_to_another_is_read_as_a_shell_does() -> None:
    job = line("O='--driver-memory 2g'\nO+=' --queue q'\nspark-submit $O /j.py ${D:-$E/x}\n")
    assert job.spec["memory"] == "2g"
    assert job.spec["conf"] == {"spark.yarn.queue": "q"}
    assert job.spec["script"]["arguments"] == ["${values.E}/x"]
    set_before = line("A=1\nspark-submit /j.py ${A:-2}\n")
    assert set_before.parameters == {"A": "1"}


def test_a_default_with_another_parameter_is_expanded_where_it_is_used() -> None:
    command = "ExecStart=spark-submit /j.py ${TOPIC} --x=${TOPIC}"
    [job] = jobs(f"[Service]\nEnvironment=TOPIC=billing.%i\n{command}\n")
    assert job.spec["script"]["arguments"] == [
        "billing.${values.INSTANCE}",
        "--x=billing.${values.INSTANCE}",
    ]
    assert job.parameters == {"INSTANCE": ""}
    script = "OUT=s3://$BUCKET/out\nspark-submit /j.py $OUT\n"
    assert line(script).spec["script"]["arguments"] == ["s3a://${values.BUCKET}/out"]
    assert "line 1: OUT=s3://$BUCKET/out: Its value is in a job." in report_of(script)


def test_a_secret_replaces_another_value_only_if_it_differs() -> None:
    same = "export TOKEN=hunter2secret\nTOKEN=hunter2secret spark-submit {} /j.py\n"
    setting = "--conf spark.hadoop.my.token={}"
    assert "replaces another" not in report_of(same.format(setting.format("$TOKEN")))
    assert "replaces another" not in report_of(
        f"TOKEN=a-b spark-submit {setting.format('$TOKEN')} /j"
    )
    other = "TOKEN=hunter3secret spark-submit {} /j.py".format(
        "--conf spark.hadoop.a.token=hunter2secret --conf spark.hadoop.a_token=hunter3secret"
    )
    assert report_of(other).count("replaces another value of the same secret") == 1


@pytest.mark.parametrize(
    ("command", "spark"),
    [
        ("spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.6.1", "3.5"),
        ("spark-submit --packages io.delta:delta-spark_4.0_2.13:4.0.0", "4.0"),
        ("/opt/spark-3.5.4/bin/spark-submit", "3.5"),
        ("/opt/spark-4.0.1-bin-hadoop3/bin/spark-submit", "4.0"),
        ("/opt/spark-2.4.8/bin/spark-submit", ""),
        ("spark-submit", ""),
    ],
)
def test_the_version_of_spark_is_found_or_asked_for(command: str, spark: str) -> None:
    job = line(f"{command} /j.py")
    assert job.spec.get("spark", "") == spark
    report = "\n".join(map(str, job.entries))
    assert ("Headgate's default applies" in report) == (not spark)


def test_an_unquoted_variable_is_reported_as_one_argument() -> None:
    job = line('spark-submit /j.py $EXTRA "$QUOTED" literal\n')
    remarked = [entry.tokens for entry in job.entries if "one argument" in entry.reason]
    assert remarked == [("$EXTRA",)]


def test_the_remark_on_s3a_is_true_everywhere_and_warns_about_checkpoints() -> None:
    text = "CHECKPOINT=s3://b/d\nspark-submit /j.py --in s3://b/a --checkpoint s3://b/c "
    text += "--checkpointDir=s3://b/e $CHECKPOINT\n"
    shown = [one for one in report_of(text).splitlines() if "as s3a://, which Hadoop knows" in one]
    assert len(shown) == 4
    warned = ["must keep its old path" in one for one in shown]
    assert warned == [False, True, True, True]


def test_a_checkpoint_in_the_configuration_belongs_into_the_script() -> None:
    report = report_of("spark-submit -c spark.sql.streaming.checkpointLocation=/c /j.py")
    assert "Set checkpointLocation in the script, or it starts from a new checkpoint." in report


def test_settings_without_effect_on_a_local_master_are_not_taken_over() -> None:
    settings = "--conf spark.dynamicAllocation.enabled=true --conf spark.driver.memoryOverhead=1g"
    job = line(f"spark-submit {settings} /j.py")
    assert "conf" not in job.spec
    report = "\n".join(map(str, job.entries))
    assert report.count("It has no effect with a local master, which is the default: set") == 2
    assert "set spec.master, then spec.conf.spark.dynamicAllocation.enabled." in report
    local = report_of(f"spark-submit --master local[2] {settings} /j.py")
    assert "It has no effect with a local master: set spec.master" in local
    assert len(line(f"spark-submit --master yarn {settings} /j.py").spec["conf"]) == 2


def test_references_to_secrets_of_the_operator_are_secrets_of_the_environment() -> None:
    [job] = jobs(
        OPERATOR.format(
            metadata=", namespace: risk, annotations: {x: y}, uid: abc",
            driver="envSecretKeyRefs: {DSN: {name: sentry, key: dsn}}",
        )
    )
    assert job.spec["env"] == {"DSN": "env:DSN"}
    report = [str(entry) for entry in job.entries]
    assert any("driver.envSecretKeyRefs DSN from secretKeyRef sentry dsn" in one for one in report)
    assert "not taken over: metadata.namespace: risk: Headgate has no namespaces." in report
    assert "not taken over: metadata.annotations.x: y: Headgate has no annotations." in report
    assert "not taken over: metadata.uid: abc: It belongs to the cluster." in report


def test_a_reason_names_the_field_of_the_input_that_decides() -> None:
    report = report_of(
        "kind: SparkApplication\nmetadata: {name: a}\nspec: {mainApplicationFile: local:///j.py, "
        "sparkConf: {spark.driver.memory: 1g}, driver: {memory: 2g}}\n"
    )
    assert "sparkConf: spark.driver.memory=1g: driver.memory decides." in report


def test_a_job_that_is_rejected_shows_nothing_as_taken_over() -> None:
    report = report_of("spark-submit --master yarn --conf spark.sql.x=1 app.jar a\n")
    assert all(one.startswith("not taken over: ") for one in report.splitlines())
    assert "not taken over: --master yarn: The job is not imported." in report
