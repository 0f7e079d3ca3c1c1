"""A definition loads no class of its own into the driver, and sets nothing that hides or runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.configuration import (
    application_conf_problems,
    environment_problems,
    query_conf_problems,
)

_STATE = "org.apache.spark.sql.execution.streaming.state"


@pytest.mark.guarantee("G-CONFIG-1", "G-CONFIG-2")
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.serializer", "com.attacker.Serializer"),
        ("spark.shuffle.dataIO.class", "com.attacker.ShuffleIO"),
        ("spark.shuffle.sort.io.plugin.class", "com.attacker.ShuffleIO"),
        ("spark.sql.streaming.stateStore.providerClass", "com.attacker.Store"),
        ("spark.sql.catalog.lake", "com.attacker.Catalog"),
        ("spark.sql.catalog.lake.io-impl", "org.apache.iceberg.attacker.FileIO"),
        ("spark.sql.sources.commitProtocolClass", "com.attacker.Commit"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "com.attacker.Provider"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "org.apache.hadoop.A, com.attacker.B"),
        ("spark.hadoop.io.serializations", "com.attacker.Serialization"),
        ("spark.hadoop.fs.evil.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem"),
        ("spark.hadoop.fs.s3a.impl", "org.apache.hadoop.fs.RawLocalFileSystem"),
        ("spark.hadoop.fs.AbstractFileSystem.s3a.impl", "org.apache.hadoop.fs.local.LocalFs"),
        ("spark.sql.redaction.options.regex", "nothing"),
        ("spark.sql.redaction.string.regex", "nothing"),
        ("spark.redaction.regex", "nothing"),
        ("spark.sql.reflect.allowList", ".*"),
        ("spark.hadoop.hadoop.security.credential.provider.path", "jceks://file/root/x.jceks"),
    ],
)
def test_configuration_that_loads_a_class_or_unmasks_is_refused(key: str, value: str) -> None:
    found = application_conf_problems({key: value})
    assert [one.field for one in found] == [f"conf.{key}"]
    assert found[0].way_out
    if key.startswith("spark.sql.") and "reflect" not in key:
        assert query_conf_problems({key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.serializer", "org.apache.spark.serializer.KryoSerializer"),
        ("spark.sql.streaming.stateStore.providerClass", f"{_STATE}.RocksDBStateStoreProvider"),
        ("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog"),
        ("spark.sql.catalog.lake.warehouse", "s3a://bucket/lake"),
        ("spark.sql.catalog.lake.type", "hadoop"),
        ("spark.hadoop.fs.s3a.impl", "org.apache.hadoop.fs.s3a.S3AFileSystem"),
        ("spark.hadoop.fs.s3a.endpoint", "https://minio.example.Com:9000"),
        (
            "spark.hadoop.fs.s3a.aws.credentials.provider",
            "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        ),
        ("spark.io.compression.codec", "zstd"),
        ("spark.sql.shuffle.partitions", "8"),
    ],
)
def test_what_tunes_a_query_or_names_a_known_class_is_allowed(key: str, value: str) -> None:
    assert application_conf_problems({key: value}) == []


@pytest.mark.guarantee("G-CONFIG-3")
@pytest.mark.parametrize(
    "name",
    ["OPENSSL_CONF", "openssl_modules", "BASH_ENV", "ENV", "GLIBC_TUNABLES", "GCONV_PATH"]
    + ["LD_PRELOAD", "KRB5_CONFIG", "SSL_CERT_FILE", "AWS_CONFIG_FILE", "NODE_OPTIONS"]
    + ["JAVA_TOOL_OPTIONS", "PYTHONSTARTUP", "GIT_SSH_COMMAND", "PERL5OPT"],
)
def test_an_environment_that_has_a_library_read_or_run_a_file_is_refused(name: str) -> None:
    [problem] = environment_problems({name: "/tmp/evil"}, allowed=())
    assert problem.field == f"env.{name}"


@pytest.mark.parametrize("name", ["STAGE", "AWS_REGION", "TEAM", "ENVIRONMENT", "OPEN_HOURS"])
def test_an_applications_own_variables_are_allowed(name: str) -> None:
    assert environment_problems({name: "x"}, allowed=()) == []


_packages = st.lists(st.from_regex(r"[a-z]{1,6}", fullmatch=True), min_size=1, max_size=4)


@given(_packages, st.from_regex(r"[A-Z][A-Za-z]{0,8}", fullmatch=True), st.sampled_from(" ,;:"))
def test_a_class_is_found_wherever_it_stands_in_a_list(
    packages: list[str], name: str, between: str
) -> None:
    foreign = ".".join(["evil", *packages, name])
    known = "org.apache.spark.serializer.KryoSerializer"
    for value in (foreign, f"{known}{between}{foreign}", f" {foreign}{between}{known}"):
        assert application_conf_problems({"spark.sql.some.key": value})
