"""Every streaming, state, checkpoint, Kafka and Python condition of Spark's has been judged.

The conditions are read from the jars that drivers run with, so that a later Spark's new ones fail
here until somebody has judged them: `judged_conditions.json` has each with its category.
"""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from queries.domain.failures.categories import Category, FailureSubject
from queries.domain.failures.diagnosis import Classified, classify
from queries.domain.sparks import CONDITIONS_SINCE, Spark, is_older
from tests import pieces

JUDGED: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("judged_conditions.json").read_text()
)
#: Names that say what a condition is about.
_ABOUT = re.compile(
    r"STREAM|STATE_|_STATE|STATEFUL|STDS|CHECKPOINT|KAFKA|PYTHON|PANDAS|ARROW|UDF|UDTF|OFFSET_"
    r"|BATCH_|LOG_FILE|LOG_VERSION|WATERMARK|FOREACH|TRIGGER|CONCURRENT_|TWS|SESSION_WINDOW"
    r"|USER_FUNCTION"
)
#: Conditions with such a name that need no judgement, and why.
_NEED_NONE = {
    r"STREAM_FAILED": "wraps another one, which is judged",
    r"AUTOCDC_|INVALID_FLOW_QUERY_TYPE|APPEND_ONCE_FROM|INCOMPATIBLE_\w+_VIEW_READ": (
        "of Spark's declarative pipelines, which start no query of their own here"
    ),
    r"INVALID_STATEMENT|INVALID_BOOLEAN_STATEMENT|\w+_DECLARATION\.|PARSE_EMPTY_STATEMENT"
    r"|\w+\.\w*UNSUPPORTED_SQL_STATEMENT|\w+\.PARAMETER_MARKER": "of SQL scripts and DDL",
    r"USER_DEFINED_FUNCTIONS\.|DATA_SOURCE_(BATCH|DELTA)_|SUM_OF_LIMIT": "of batch queries",
}


def _conditions(jar: Path, name: str) -> Iterator[tuple[str, str]]:
    """Yield each condition, subclasses by themselves, with its text as Spark prints it."""
    with zipfile.ZipFile(jar) as archive:
        found: dict[str, dict[str, Any]] = json.loads(archive.read(f"error/{name}"))
    for condition, about in found.items():
        words = " ".join(about["message"])
        state = f" SQLSTATE: {about['sqlState']}" if "sqlState" in about else ""
        below = about.get("subClass", {})
        for sub, more in below.items():
            text = f"{words} {' '.join(more['message'])}"
            yield f"{condition}.{sub}", f"[{condition}.{sub}] {text}{state}"
        if not below:
            yield condition, f"[{condition}] {words}{state}"


def _of_spark() -> dict[str, str]:
    (jar,) = Path(pyspark.__file__).parent.glob("jars/spark-common-utils_*.jar")
    return {
        name: text
        for name, text in _conditions(jar, "error-conditions.json")
        if _ABOUT.search(name)
        and not name.startswith("_LEGACY")
        and not any(re.match(pattern, name) for pattern in _NEED_NONE)
    }


def _of_kafka() -> dict[str, str]:
    (jar,) = pieces.kafka_connector().glob("spark-sql-kafka-0-10_*.jar")
    return dict(_conditions(jar, "kafka-error-conditions.json"))


def _classified(name: str, text: str, type_name: str, subject: FailureSubject) -> Classified:
    known = classify(
        error_class=name, type_name=type_name, root_cause=text, message=text, subject=subject
    )
    printed = classify(
        error_class="", type_name=type_name, root_cause=text, message=text, subject=subject
    )
    assert (known.category, known.way_out) == (printed.category, printed.way_out), name
    return known


def _judge(conditions: dict[str, str], type_name: str) -> dict[str, str]:
    found = {}
    for name, text in conditions.items():
        for subject in FailureSubject:
            said = _classified(name, text, type_name, subject)
            assert said.meaning.endswith("."), (name, said.meaning)
            assert said.way_out.endswith("."), (name, said.way_out)
            assert not set("{}") & set(said.meaning + said.way_out), name
            found[name] = str(said.category)
    return found


def test_every_condition_of_spark_is_judged() -> None:
    judged = {name: category for category, names in JUDGED.items() for name in names}
    of_kafka = _of_kafka() if pieces.kafka_connector().is_dir() else {}
    found = _judge(_of_spark(), "org.apache.spark.SparkException")
    assert found == {name: category for name, category in judged.items() if name in found}
    assert set(judged) - set(found) <= set(of_kafka) or not of_kafka
    assert Category.UNKNOWN not in JUDGED
    assert len(found) > 200


@pytest.mark.kafka
def test_every_condition_of_kafkas_connector_is_judged_and_only_loss_is_loss() -> None:
    judged = {name: category for category, names in JUDGED.items() for name in names}
    conditions = _of_kafka()
    found = _judge(conditions, "org.apache.spark.sql.kafka010.KafkaIllegalStateException")
    assert found == {name: judged.get(name) for name in found}
    lost = {name for name, category in found.items() if category == Category.SOURCE_LOST}
    assert lost == {name for name in found if name.startswith("KAFKA_DATA_LOSS.")}
    assert len(found) - len(lost) == 11
    for name in set(found) - lost:
        said = _classified(
            name, conditions[name], "x.KafkaIllegalStateException", FailureSubject.SQL
        )
        assert "lost data" not in said.way_out
        assert "failOnDataLoss" not in said.way_out


def test_what_needs_no_judgement_is_there() -> None:
    (jar,) = Path(pyspark.__file__).parent.glob("jars/spark-common-utils_*.jar")
    names = [name for name, _ in _conditions(jar, "error-conditions.json")]
    for pattern in _NEED_NONE:
        assert any(re.match(pattern, name) for name in names), pattern


@pytest.mark.parametrize("spark", pieces.jars_of_sparks())
def test_the_conditions_that_older_versions_lack_are_those_of_their_jars(spark: Spark) -> None:
    folder = pieces.jars_of_sparks()[spark]
    names: set[str] = set()
    for jar in folder.glob("spark-common-utils_*.jar"):
        with zipfile.ZipFile(jar) as archive:
            file = "classes" if spark == "3.5" else "conditions"
            names |= json.loads(archive.read(f"error/error-{file}.json")).keys()
    has = {name for name, since in CONDITIONS_SINCE.items() if not is_older(spark, since)}
    # Kafka's are in the connector's jar, whose version differs.
    ours = {name for name in CONDITIONS_SINCE if not name.startswith("KAFKA_")}
    assert names & ours == has & ours
