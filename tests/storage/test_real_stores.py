"""The S3 gateway and the HDFS of the tests keep what is written, and refuse a second creation."""

from dataclasses import replace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests import pieces
from tests.storage.stores import HadoopJvm, S3Store, Store

#: S3A's option for a creation by `If-None-Match: *` (Hadoop 3.4.2 and later).
CONDITIONAL = "fs.option.create.conditional.overwrite"


def write(stream: Any, content: bytes) -> None:
    stream.write(content)
    stream.close()


@pytest.mark.s3
def test_an_object_that_exists_is_not_created_again(s3: S3Store, hadoop_jvm: HadoopJvm) -> None:
    files, place = hadoop_jvm.files(s3), s3.place("owner")

    def created() -> Any:
        return files.createFile(hadoop_jvm.path(place)).create().must(CONDITIONAL, True).build()

    # Both see nothing there when they begin: the store itself must refuse the second.
    first, second = created(), created()
    write(first, b"first")
    with pytest.raises(Py4JJavaError, match="412"):
        write(second, b"second")

    assert hadoop_jvm.read(files, place) == b"first"
    assert (s3.folder / place.rpartition("/")[2]).read_bytes() == b"first"
    files.close()


@pytest.mark.s3
def test_other_keys_are_refused(s3: S3Store, hadoop_jvm: HadoopJvm) -> None:
    wrong = {**s3.conf, "spark.hadoop.fs.s3a.secret.key": "not the key"}
    files = hadoop_jvm.files(S3Store(s3.root, s3.server, wrong))
    with pytest.raises(Py4JJavaError, match="AccessDenied"):
        hadoop_jvm.read(files, s3.place())
    files.close()


@pytest.mark.hdfs
def test_a_file_that_exists_is_not_created_again(hdfs: Store, hadoop_jvm: HadoopJvm) -> None:
    files, place = hadoop_jvm.files(hdfs), hdfs.place("owner")

    write(files.create(hadoop_jvm.path(place), False), b"first")
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        files.create(hadoop_jvm.path(place), False)

    assert hadoop_jvm.read(files, place) == b"first"
    files.close()


@pytest.mark.hdfs
@pytest.mark.faults
def test_files_of_hdfs_outlive_a_crash(hdfs: Store, hadoop_jvm: HadoopJvm) -> None:
    place = hdfs.place("kept")
    files = hadoop_jvm.files(hdfs)
    write(files.create(hadoop_jvm.path(place), False), b"kept")
    files.close()

    hdfs.server.kill()
    hdfs.server.start(pieces.java().home)

    # A JVM keeps its connections: one that has not yet noticed the crash must try again.
    again = {
        "spark.hadoop.dfs.client.retry.policy.enabled": "true",
        "spark.hadoop.dfs.client.retry.policy.spec": "500,20",
    }
    files = hadoop_jvm.files(replace(hdfs, conf=again))
    assert hadoop_jvm.read(files, place) == b"kept"
    files.close()
