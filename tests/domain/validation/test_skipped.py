"""What a save went on without is kept with its word, and read again."""

from queries.domain.validation.skipped import Check, Skip, as_json, from_json, unchecked_sql

SKIP = Skip(Check.SQL, "Spark's parser did not respond.", again=True)


def test_a_skipped_check_is_one_line_with_its_word() -> None:
    assert SKIP.text == "SQL not checked: Spark's parser did not respond."


def test_what_a_revision_keeps_is_read_again_and_a_later_releases_check_is_left_out() -> None:
    kept = as_json([SKIP])
    assert kept[0]["word"] == "SQL not checked"
    later = {"check": "of a later release", "why": "", "again": False}
    assert from_json([*kept, later]) == [SKIP]


def test_sql_that_was_not_checked_is_a_problem_if_the_check_is_required() -> None:
    skips = [
        Skip(Check.CODE, "It is fetched later."),
        Skip(Check.SQL, "Spark's parser did not respond.", again=True),
        Skip(Check.SQL, "The settings change Spark's grammar."),
    ]
    later, never = unchecked_sql(skips)
    assert later.message.endswith("requires the check. Spark's parser did not respond.")
    assert (later.field, later.way_out) == ("sql", "Send it again later.")
    assert never.way_out == "Omit require_checked (--require-checked)."
