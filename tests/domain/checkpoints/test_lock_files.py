"""A checkpoint's lock stands beside it, and everybody means the same file."""

import pytest

from queries.domain.checkpoints.ownership import local_path, lock_file, lock_folder, owner_file


@pytest.mark.parametrize(
    ("location", "lock"),
    [
        ("file:///data/checkpoints/delays", "/data/checkpoints/.headgate/delays.held/lock"),
        ("file:/data/checkpoints/delays/", "/data/checkpoints/.headgate/delays.held/lock"),
        ("/data/checkpoints/delays", "/data/checkpoints/.headgate/delays.held/lock"),
        ("file://localhost/data/a%20b", "/data/.headgate/a b.held/lock"),
        ("/data/a%20b?#c", "/data/.headgate/a%20b?#c.held/lock"),
    ],
)
def test_a_local_checkpoint_has_its_lock_beside_it(location: str, lock: str) -> None:
    assert str(lock_file(location)) == lock


@pytest.mark.parametrize("location", ["s3a://bucket/delays", "file://other/data", "relative"])
def test_a_checkpoint_elsewhere_cannot_be_locked(location: str) -> None:
    assert local_path(location) is None
    assert lock_file(location) is None
    assert lock_folder(location) is None


def test_the_owner_file_stands_there_too() -> None:
    assert owner_file("file:///data/delays") == "/data/.headgate/delays.held/owner.json"
    assert owner_file("s3a://bucket/x/delays/") == "s3a://bucket/x/.headgate/delays.owner.json"
