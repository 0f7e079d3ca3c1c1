"""The names of owner objects, and which of them can be removed."""

from queries.domain.checkpoints.ownership import (
    MAX_OWNER_AGE_MS,
    OWNERS_REMOVED,
    owner_number,
    owner_object,
    owners_folder,
    superfluous_owners,
)


def test_an_owner_object_is_beside_its_checkpoint_and_its_number_can_be_read_from_its_name() -> (
    None
):
    folder = owners_folder("s3a://bucket/checkpoints/delays/")
    assert folder == "s3a://bucket/checkpoints/.headgate/delays.owners"
    path = owner_object(folder, 7)
    assert path == f"{folder}/00000000000000000007.json"
    assert owner_number(path.rpartition("/")[2]) == 7


def test_other_files_have_no_number() -> None:
    assert owner_number("7.json") is None
    assert owner_number("00000000000000000007.json.tmp") is None


def test_the_newest_ten_stay_however_old_they_are() -> None:
    assert superfluous_owners(dict.fromkeys(range(1, 11), 0)) == []
    old = dict.fromkeys(range(1, 12), 0)
    assert superfluous_owners(old | {12: MAX_OWNER_AGE_MS}) == []
    assert superfluous_owners(old | {12: MAX_OWNER_AGE_MS + 1}) == [1, 2]


def test_one_start_removes_a_bounded_number_of_them() -> None:
    many = dict.fromkeys(range(1, 100), 0) | {100: MAX_OWNER_AGE_MS + 1}
    assert superfluous_owners(many) == list(range(1, OWNERS_REMOVED + 1))


def test_nothing_is_removed_where_there_is_nothing() -> None:
    assert superfluous_owners({}) == []
