"""The names of Spark's internals, compared with the jars of every version that is installed."""

from pathlib import Path
from zipfile import ZipFile

import pytest

from headgate_ground import spark_names
from queries.domain.sparks import Spark
from tests import pieces


def _classes(jars: Path) -> set[str]:
    names: set[str] = set()
    for jar in jars.glob("spark-*.jar"):
        with ZipFile(jar) as archive:
            names.update(archive.namelist())
    return {name.removesuffix(".class").replace("/", ".") for name in names}


@pytest.mark.parametrize("spark", pieces.jars_of_sparks())
def test_each_listed_class_exists_and_none_is_left_out_that_only_moved(spark: Spark) -> None:
    existing = _classes(pieces.jars_of_sparks()[spark])
    simple = {name.rpartition(".")[2] for name in existing}
    for name in spark_names.CLASSES:
        named = spark_names.class_named(name, f"{spark}.0")
        if named:
            assert named in existing
        else:
            assert name.rpartition(".")[2] not in simple


def test_a_class_that_left_spark_is_an_error_and_no_reason_to_check_less() -> None:
    class Jvm:
        """A JVM without any class."""

        class NotFound(Exception): ...

        def __getattr__(self, name: str) -> "Jvm":
            return self

        def spark_version(self) -> str:
            return "3.5.9"

        def forName(self, name: str) -> None:
            raise self.NotFound(name)

    with pytest.raises(Jvm.NotFound, match=r"logical\.Command$"):
        spark_names.classes(spark_names.COMMANDS, Jvm())


def test_a_batch_of_an_old_spark_has_a_duration_too() -> None:
    old = {"batchId": 4, "durationMs": {"addBatch": 20, "triggerExecution": 31}}
    assert spark_names.complete_progress(old)["batchDuration"] == 31
    new = {"batchId": 4, "batchDuration": 30, "durationMs": {"triggerExecution": 31}}
    assert spark_names.complete_progress(new) == new
    assert spark_names.complete_progress({"batchId": 4}) == {"batchId": 4}
