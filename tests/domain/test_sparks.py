"""The versions of Spark that an application can choose, and what the older ones lack."""

from pathlib import Path

import pyspark
import pytest

from queries.domain.definitions.spec import ApplicationSpec
from queries.domain.sparks import OURS, SPARKS, TRIGGERS_SINCE, command, has_trigger

CONNECTORS = Path(__file__).resolve().parents[2] / "connectors"


def test_an_application_runs_on_the_spark_of_headgate_unless_it_names_another() -> None:
    assert ApplicationSpec().spark == OURS
    assert pyspark.__version__.startswith(f"{OURS}.")


def test_every_other_version_has_pinned_packages_and_a_command() -> None:
    others = {path.stem: path.read_text() for path in (CONNECTORS / "sparks").glob("*.txt")}
    assert set(others) == set(SPARKS) - {OURS}
    for version, pins in others.items():
        assert f"pyspark=={version}." in pins
        assert "--hash=sha256:" in pins
        assert command(version).endswith(version)


@pytest.mark.parametrize("kind", ["processing_time", "available_now", "continuous"])
def test_old_triggers_are_in_every_version(kind: str) -> None:
    assert all(has_trigger(spark, kind) for spark in SPARKS)


def test_a_new_trigger_is_in_its_first_version_and_in_later_ones() -> None:
    assert [has_trigger(spark, "real_time") for spark in SPARKS] == [False, True, True]
    assert TRIGGERS_SINCE["real_time"] == "4.2"
