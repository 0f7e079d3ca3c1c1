"""Keys of Hadoop's in Spark's configuration: which lead paths elsewhere, and which only tune."""

import pytest

from queries.domain.definitions.declarations import (
    hadoop_keys_of,
    hadoop_refusal,
    is_foreign_to_hadoop,
    is_hadoop_tuning,
)

S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"


@pytest.mark.parametrize(
    ("conf", "keys"),
    [
        ("spark.hadoop.fs.s3a.endpoint", ("fs.s3a.endpoint",)),
        ("spark.sql.shuffle.partitions", ()),
        ("spark.sql.catalog.lake.hadoop.fs.s3a.impl", ("fs.s3a.impl",)),
    ],
)
def test_a_key_of_configuration_sets_keys_of_hadoops(conf: str, keys: tuple[str, ...]) -> None:
    assert hadoop_keys_of(conf) == keys


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("fs.defaultFS", "viewfs://x/", "redirect"),
        ("fs.viewfs.mounttable.x.link./data", "file:///", "redirect"),
        ("fs.s3a.impl", "org.acme.Own", "another file system"),
        ("fs.file.impl", "org.acme.Own", "another file system"),
        ("parquet.private.read.filter.predicate", "rO0AB", "deserialize"),
    ],
)
def test_what_leads_paths_elsewhere_is_refused_with_a_way_out(
    key: str, value: str, why: str
) -> None:
    found = hadoop_refusal(key, value)
    assert found is not None
    assert why in found[0]
    assert found[1]


@pytest.mark.parametrize(
    ("key", "value"), [("fs.s3a.impl", S3A), ("fs.s3a.endpoint", "http://127.0.0.1:9000")]
)
def test_what_leads_nowhere_else_is_not(key: str, value: str) -> None:
    assert hadoop_refusal(key, value) is None


@pytest.mark.parametrize(
    ("key", "tunes"),
    [
        ("fs.s3a.impl", True),
        ("fs.s3a.connection.maximum", True),
        ("hadoop.security.group.mapping", False),
        ("acme.level", False),
    ],
)
def test_a_key_tunes_where_it_names_neither_file_nor_program(key: str, tunes: bool) -> None:
    assert is_hadoop_tuning(key) is tunes


def test_an_option_of_a_connectors_may_not_be_a_key_of_hadoops() -> None:
    assert is_foreign_to_hadoop("fs.defaultfs")
    assert not is_foreign_to_hadoop("kafka.bootstrap.servers")
