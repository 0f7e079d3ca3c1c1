"""A sink whose path a YARN cluster completes is not taken for one on this host's disk."""

from pathlib import Path
from typing import Any

import pytest

from listeners.models import Latest
from queries.domain.errors import NotAllowed
from queries.models.definitions import Query
from queries.services.checkpoints.file_sinks import file_sink, remote_sink
from queries.services.checkpoints.switching import is_remote, table_of
from tests.scenarios.stage import Stage

pytestmark = pytest.mark.django_db


def _query(stage: Stage, master: str, sink: dict[str, Any]) -> Query:
    """Make a query as an older release saved it: no rule applied to its path."""
    application = stage.application("flights")
    query = stage.query("delays", "flights", sink=sink)
    newest = application.revisions.latest("number")
    application.revisions.update(spec={**newest.spec, "master": master})
    return query


@pytest.mark.guarantee("G-YARN-1")
def test_the_log_of_a_file_sink_is_not_looked_for_on_this_host(
    stage: Stage, tmp_path: Path
) -> None:
    path = f"{tmp_path}/data/out"
    query = _query(stage, "yarn", {"format": "parquet", "options": {"path": path}})
    assert file_sink(query) is None
    with pytest.raises(NotAllowed, match="whose log Headgate cannot find") as refused:
        remote_sink(query)
    assert f"Write hdfs://NAMESERVICE{path}, " in refused.value.way_out


def test_what_spark_reports_of_a_scripts_sink_is_no_local_path_either(stage: Stage) -> None:
    query = _query(stage, "yarn", {})
    revision = query.revisions.get()
    revision.spec = {**revision.spec, "sink": None}
    revision.save()
    line = Latest.objects.create(query=query.pk, driver=1, epoch=1, seq=1, run=1, at=stage.now)
    for described in ("FileSink[/user/etl/out]", "FileSink[hdfs://nn/user/etl/out]"):
        line.progress = {"sink": {"description": described}}
        line.save()
        assert file_sink(query) is None
    assert remote_sink(query) == "hdfs://nn/user/etl/out"


def test_a_delta_table_is_not_looked_for_on_this_host(stage: Stage, tmp_path: Path) -> None:
    path = f"{tmp_path}/data/t"
    query = _query(stage, "yarn", {"format": "delta", "options": {"path": path}})
    table = table_of(query)
    assert table is not None
    assert not table.location
    assert not is_remote(table)
    assert f"Write hdfs://NAMESERVICE{path}, " in table.problem


def test_elsewhere_a_plain_path_is_this_hosts(stage: Stage, tmp_path: Path) -> None:
    sink = {"format": "parquet", "options": {"path": f"{tmp_path}/data/out"}}
    query = _query(stage, "spark://host:7077", sink)
    assert file_sink(query) is not None
    assert remote_sink(query) == ""
