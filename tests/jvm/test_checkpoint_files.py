"""A log entry is written once: two drivers' file managers on a real S3 gateway and a real HDFS."""

from collections.abc import Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from queries.domain.sparks import OURS, SPARKS
from queries.jvm.compiled import our_jar
from tests import pieces
from tests.storage.stores import HadoopJvm, S3Store, Store

S3, HDFS = pytest.param("s3", marks=pytest.mark.s3), pytest.param("hdfs", marks=pytest.mark.hdfs)


@pytest.fixture(scope="module", params=SPARKS)
def hadoop_jvm(request: pytest.FixtureRequest) -> Iterator[HadoopJvm]:
    """Return a small JVM with the jars of each Spark, and with its connector s3."""
    if request.param != OURS and (missing := pieces.missing_connector("s3", request.param)):
        pytest.skip(missing)
    jvm = HadoopJvm(request.param)
    try:
        yield jvm
    finally:
        jvm.end()


@pytest.fixture(scope="module")
def loaded(hadoop_jvm: HadoopJvm, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return our class in the small JVM; py4j cannot tell two loadings of one class apart."""
    jar = our_jar(tmp_path_factory.mktemp("classes"), jars=hadoop_jvm.jars)
    java = hadoop_jvm.jvm.java
    urls = hadoop_jvm._gateway.new_array(java.net.URL, 1)
    urls[0] = java.io.File(str(jar)).toURI().toURL()
    parent = java.lang.Thread.currentThread().getContextClassLoader()
    return java.net.URLClassLoader(urls, parent).loadClass("headgate.CheckpointFiles")


class Managers:
    """File managers of a checkpoint, as different drivers have them."""

    def __init__(self, store: Store, jvm: HadoopJvm, loaded: Any) -> None:
        self.jvm, self._loaded = jvm, loaded
        self.location = store.place("delays")
        self._conf = jvm.jvm.org.apache.hadoop.conf.Configuration()
        for name, value in store.conf.items():
            self._conf.set(name.removeprefix("spark.hadoop."), value)
        self._conf.set("spark.sql.streaming.checkpointFileManagerClass", "not.a.Class")

    def one(self) -> Any:
        """Return the file manager of another driver."""
        java, gateway = self.jvm.jvm.java, self.jvm._gateway
        hadoop = self.jvm.jvm.org.apache.hadoop
        kinds = gateway.new_array(java.lang.Class, 2)
        kinds[0] = java.lang.Class.forName("org.apache.hadoop.fs.Path")
        kinds[1] = java.lang.Class.forName("org.apache.hadoop.conf.Configuration")
        given = gateway.new_array(java.lang.Object, 2)
        given[0], given[1] = hadoop.fs.Path(self.location), self._conf
        return self._loaded.getConstructor(kinds).newInstance(given)

    def path(self, name: str) -> Any:
        """Return the path of a file in the checkpoint."""
        return self.jvm.path(f"{self.location}/{name}")

    def text(self, name: str) -> bytes:
        """Return what a file holds."""
        stream = self.one().open(self.path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def names(self) -> list[str]:
        """Return the names of the files in the checkpoint's folder, as Spark sees them."""
        names = (str(one.getPath().getName()) for one in self.one().list(self.path("")))
        return sorted(name for name in names if not name.startswith("."))  # not temporary ones


@pytest.fixture(params=[S3, HDFS])
def managers(request: pytest.FixtureRequest, hadoop_jvm: HadoopJvm, loaded: Any) -> Managers:
    made = Managers(request.getfixturevalue(request.param), hadoop_jvm, loaded)
    made.one().mkdirs(made.jvm.path(made.location))
    return made


def _begun(manager: Any, path: Any, text: bytes, *, replace: bool = False) -> Any:
    stream = manager.createAtomic(path, replace)
    stream.write(text)
    return stream


@pytest.mark.guarantee("G-FENCE-3")
@pytest.mark.promise
def test_of_two_drivers_that_write_one_entry_exactly_one_succeeds(managers: Managers) -> None:
    path = managers.path("7")
    first, second = (_begun(managers.one(), path, text) for text in (b"first", b"second"))
    first.close()
    with pytest.raises(Py4JJavaError) as refused:
        second.close()
    kind = refused.value.java_exception.getClass().getName()
    assert kind == "org.apache.hadoop.fs.FileAlreadyExistsException"  # Spark looks for this one
    second.cancel()
    assert managers.text("7") == b"first"
    assert managers.names() == ["7"]


def test_an_entry_does_not_exist_before_it_is_complete_and_never_if_it_was_cancelled(
    managers: Managers,
) -> None:
    manager, path = managers.one(), managers.path("7")
    begun = _begun(manager, path, b"half")
    assert not manager.exists(path)
    begun.cancel()
    begun.close()
    assert managers.names() == []
    _begun(manager, path, b"whole").close()
    assert managers.text("7") == b"whole"


def test_a_file_of_the_state_can_be_replaced(managers: Managers) -> None:
    path = managers.path("1.delta")
    for text in (b"first", b"second"):
        _begun(managers.one(), path, text, replace=True).close()
    assert managers.text("1.delta") == b"second"


@pytest.mark.s3
def test_the_second_writer_is_named_if_it_is_headgates_and_only_then(
    s3: S3Store, hadoop_jvm: HadoopJvm, loaded: Any
) -> None:
    managers = Managers(s3, hadoop_jvm, loaded)
    path = managers.path("7")
    _begun(managers.one(), path, b"first").close()
    with pytest.raises(Py4JJavaError, match="7 has been written by another driver"):
        _begun(managers.one(), path, b"second").close()
    _begun(managers.one(), path, b"stranger", replace=True).close()
    with pytest.raises(Py4JJavaError, match="7 exists already"):
        _begun(managers.one(), path, b"third").close()
    assert managers.text("7") == b"stranger"


@pytest.mark.s3
def test_an_answer_that_was_lost_is_no_second_writer(
    s3: S3Store, hadoop_jvm: HadoopJvm, loaded: Any
) -> None:
    managers = Managers(s3, hadoop_jvm, loaded)
    path = managers.path("7")
    begun = _begun(managers.one(), path, b"first")
    files = hadoop_jvm.files(s3)
    # The same object with the same writer, as if the store had stored it without answering.
    writer = begun.getClass().getDeclaredField("writer")
    writer.setAccessible(True)
    header = "fs.s3a.create.header.headgate-writer"
    builder = files.createFile(path).create().overwrite(True)
    stored = builder.opt(header, str(writer.get(begun))).build()
    stored.write(b"first")
    stored.close()
    begun.close()
    assert managers.text("7") == b"first"
    files.close()
