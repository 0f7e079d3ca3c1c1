"""Tables in a bucket: Delta on Spark 4.2, and Iceberg on 4.1 with a Hadoop catalog in the bucket.

CI has no connector s3 for these versions, which is 650 MB each.
"""

from pathlib import Path
from typing import Any

import pytest

from queries.domain.sparks import Spark
from tests.spark.driver_under_test import write_rows
from tests.spark.tables.lake import lake, manifests, of_files, rows_of, sql
from tests.storage.stores import S3Store

pytestmark = [pytest.mark.spark, pytest.mark.s3]


@pytest.mark.parametrize(("connector", "version"), [("delta", "4.2"), ("iceberg", "4.1")])
def test_rows_go_through_a_table_in_a_bucket_that_is_a_data_root(
    connector: str, version: Spark, tmp_path: Path, s3: S3Store
) -> None:
    place, elsewhere = s3.place(connector), f"{s3.root}-other/{connector}"
    conf = dict(s3.conf)
    tables: list[dict[str, Any]] = [
        {"format": "delta", "options": {"path": folder}} for folder in (place, elsewhere)
    ]
    if connector == "iceberg":
        conf |= manifests("iceberg", tmp_path)["flights-iceberg"]["conf"]
        conf |= {key.replace(".lake", ".other"): value for key, value in conf.items()}
        conf["spark.sql.catalog.lake.warehouse"] = place
        conf["spark.sql.catalog.other.warehouse"] = elsewhere
        names = ("lake.air.people", "other.air.people")
        tables = [{"format": "iceberg", "options": {"table": name}} for name in names]
    inside, outside = tables
    rows = [{"id": 1, "name": "ada"}, {"id": 2, "name": "bob"}]
    with lake(tmp_path, connector, version, conf, bucket=s3.root) as one:
        write_rows(one.data / "in", "1.json", rows)
        files = {"format": "json", "options": {"path": str(one.data / "out")}}
        first = one.start(sql(of_files(one.data / "in"), inside))
        one.completed(first)
        second = one.start(sql(inside, files))
        one.completed(second)
        assert rows_of(one.data / "out") == rows
        write_rows(one.data / "in", "2.json", [{"id": 3, "name": "cy"}])
        one.completed(one.again(first))
        one.completed(one.again(second))
        assert [row["id"] for row in rows_of(one.data / "out")] == [1, 2, 3]
        for spec in (sql(inside, outside), sql(outside, files)):
            assert "outside the allowed paths" in one.failed(one.start(spec))
