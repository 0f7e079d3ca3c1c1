"""Whether a stream's rows of a key come to one task without a shuffle, on Spark's own plans."""

from pathlib import Path

import pytest

from tests import pieces
from tests.spark import stories
from tests.spark.async_calls import async_lineage_story

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_only_the_records_own_key_of_one_whole_topic_needs_no_shuffle(tmp_path: Path) -> None:
    jars = ",".join(str(jar) for jar in sorted(pieces.kafka_connector().glob("*.jar")))
    answer = stories.told(async_lineage_story, jars, folder=tmp_path)
    assert answer["told"] == {
        "key": True,
        "cast": True,
        "renamed, filtered, watermarked": True,
        "of the value": False,
        "computed": False,
        "a number": False,
        "two topics": False,
        "split": False,
        "joined": False,
        "not Kafka": False,
    }
    assert "order_by" in answer["refused"]
    assert "shuffle=False" in answer["refused"]
