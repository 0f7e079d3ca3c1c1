"""What a save went on without is kept with its word, and read again."""

from queries.domain.validation.skipped import Check, Skip, as_json, from_json

SKIP = Skip(Check.SQL, "Spark's parser did not respond.", again=True)


def test_a_skipped_check_is_one_line_with_its_word() -> None:
    assert SKIP.text == "SQL not checked: Spark's parser did not respond."


def test_what_a_revision_keeps_is_read_again_and_a_later_releases_check_is_left_out() -> None:
    kept = as_json([SKIP])
    assert kept[0]["word"] == "SQL not checked"
    later = {"check": "of a later release", "why": "", "again": False}
    assert from_json([*kept, later]) == [SKIP]
