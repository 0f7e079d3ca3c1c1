"""Files that EMR recorded as `s3://` are found in the logs of file sources and file sinks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.checkpoints.logs import file_named_s3

SOURCE = (
    'v1\n{"path":"s3://lake/in/day%201/a.json","timestamp":1767225600000,"batchId":0}\n'
    '{"path":"s3://lake/in/b.json","timestamp":1767225600001,"batchId":0}\n'
)
SINK = (
    'v1\n{"path":"s3://lake/out/part-0.parquet","size":9,"isDir":false,"modificationTime":1,'
    '"blockReplication":1,"blockSize":9,"action":"add"}\n'
)


@pytest.mark.parametrize(
    ("log", "path", "file"),
    [
        (SOURCE, "s3a://lake/in", "s3://lake/in/day%201/a.json"),
        (SOURCE, "s3a://lake/in/", "s3://lake/in/day%201/a.json"),
        (SOURCE, "S3A://lake//in/day 1", "s3://lake/in/day%201/a.json"),
        (SOURCE, "s3a://lake/in/*.json", "s3://lake/in/day%201/a.json"),
        (SOURCE, "s3a://lake/in/b*", "s3://lake/in/day%201/a.json"),
        (SOURCE, "s3a://lake/", "s3://lake/in/day%201/a.json"),
        (SINK, "s3a://lake/out", "s3://lake/out/part-0.parquet"),
        # files of another place are other files, whatever their scheme
        (SOURCE, "s3a://lake/elsewhere", ""),
        (SOURCE, "s3a://pond/in", ""),
        (SOURCE, "s3a://lake/i", ""),
        (SOURCE, "s3a://lake/in/day 1/a.json", "s3://lake/in/day%201/a.json"),
        (SOURCE.replace("s3:", "s3a:"), "s3a://lake/in", ""),
        ("v1", "s3a://lake/in", ""),
        ("", "s3a://lake/in", ""),
    ],
)
def test_a_file_below_the_path_is_found_by_its_former_name(log: str, path: str, file: str) -> None:
    assert file_named_s3(log, [path]) == file


def test_without_a_path_on_s3_no_file_counts() -> None:
    assert file_named_s3(SOURCE, []) == ""


@given(st.text("abc/", min_size=1), st.text("xyz", min_size=1))
def test_every_file_below_the_path_is_found(folder: str, name: str) -> None:
    log = f'v1\n{{"path":"s3://lake/{folder}/{name}","timestamp":1,"batchId":0}}\n'
    assert file_named_s3(log, [f"s3a://lake/{folder}"]) != ""
