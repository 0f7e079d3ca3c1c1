"""Failures with one cause share a fingerprint, whatever numbers, ids and paths they print."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queries.domain.failures.error_text import fingerprint, normalised, sql_position, top_frame
from tests.domain.failures.test_diagnosis import DIVIDE_BY_ZERO, proxy


def of(message: str, *, error_class: str = "", type_name: str = "", root_cause: str = "") -> str:
    return fingerprint(
        error_class=error_class,
        type_name=type_name,
        root_cause=root_cause or message,
        message=message,
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Cannot read batch 17", "Cannot read batch 4711"),
        ("no file /data/in/a-1.json", "no file /var/lib/b.json"),
        ("cannot open s3a://bucket/x?y=1", "cannot open hdfs://nn:8020/z"),
        (
            "run 48ab0886-b80c-43b7-8b2c-a96d38573e3d ended",
            "run 0f7f3c40-ca81-4b0c-bca9-c7abc492dc60 ended",
        ),
        ("Sink Foo@3f2a91bc closed", "Sink Foo@7 closed"),
        ("lost offset [93635, 104204) of in-0", "lost offset [1, 2) of in-1"),
        ("late since 2013-01-01T05:00:00Z", "late since 2026-11-21 07:10:00.125+01:00"),
        ("address 0xdeadbeef", "address 0x1"),
        ("weight 1.5e-3", "weight -12"),
        ("spread  over\n two", "spread over two"),
    ],
)
def test_numbers_ids_paths_times_and_hex_make_no_difference(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("no such column price", "no such column delay"), ("a is null", "a is not null")],
)
def test_words_make_a_difference(one: str, other: str) -> None:
    assert of(one) != of(other)


def test_the_same_line_of_ones_own_code_is_one_group_through_edits_and_copies() -> None:
    first = proxy("KeyError: 'a'", line=40, sha="ab" * 32)
    later = proxy("KeyError: 'b'", line=57, sha="cd" * 32)
    assert top_frame(first) == "flights_by_hour.py in upsert"
    assert of(first) == of(later)


def test_another_condition_or_type_is_another_group() -> None:
    text = proxy("KeyError: 'a'")
    assert of(text, error_class="PYTHON_EXCEPTION") != of(text, error_class="FAILED_EXECUTE_UDF")
    assert of(text, type_name="java.io.IOException") != of(text, type_name="a.b.Other")


def test_a_condition_that_was_lost_on_the_way_is_found_again() -> None:
    known = of(DIVIDE_BY_ZERO, error_class="DIVIDE_BY_ZERO", type_name="a.SparkArithmeticException")
    for lost in ("STREAM_FAILED", ""):
        assert known == of(DIVIDE_BY_ZERO, error_class=lost, type_name="b.SparkArithmeticException")


def test_the_plan_and_offsets_in_a_message_make_no_difference() -> None:
    message = "java.lang.IllegalStateException: odd\n=== Streaming Query ===\nOffsets: {{a: {0}}}"
    assert of(message.format("one"), root_cause="odd") == of(
        message.format("two"), root_cause="odd"
    )


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        ("", ""),
        ("java.io.IOException: x\n\tat org.apache.spark.A.b(A.scala:1)", ""),
        (
            "java.io.IOException: x\n\tat java.A.b(A.java)\n\tat com.acme.Sink.put(S.java:9)",
            "com.acme.Sink.put",
        ),
        (
            "a.B: x\n\tat com.acme.Outer.call(O.java:1)\nCaused by: c.D: y\n"
            "\tat com.acme.Inner.call(I.java:2)",
            "com.acme.Inner.call",
        ),
        ('  File "/srv/jobs/lib/io.py", line 3, in read\n', "lib/io.py in read"),
        ('  File "/srv/headgate/queries/runtime/build.py", line 3, in build\n', ""),
        ('  File "<frozen importlib._bootstrap>", line 3, in _find\n', ""),
        ("== SQL (line 2, position 1) ==\nab cd ef\n   ^^\n", "sql: cd"),
    ],
)
def test_the_top_frame_is_the_innermost_one_of_ones_own(message: str, frame: str) -> None:
    assert top_frame(message) == frame


@given(st.text(alphabet="ab <>[]/.:-_@'0123456789fx\n", max_size=200))
@example("@a0_")  # a name that only begins like an object's hash
def test_what_is_normalised_stays_as_it_is(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.uuids(), st.uuids())
def test_a_fingerprint_holds_no_number_and_no_id(a: int, b: int, c: object, d: object) -> None:
    template = "Batch {0} of run {1} failed at offset {0} in /x/{1}/{0}.json"
    assert of(template.format(a, c)) == of(template.format(b, d))


@given(*(st.text(max_size=200) for _ in range(4)))
def test_a_fingerprint_is_32_digits_whatever_is_said(
    error_class: str, type_name: str, root_cause: str, message: str
) -> None:
    found = fingerprint(
        error_class=error_class, type_name=type_name, root_cause=root_cause, message=message
    )
    assert len(found) == 32
    assert int(found, 16) >= 0


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[DIVIDE_BY_ZERO] …\n== SQL (line 2, position 19) ==\nselect a / b\n", (2, 19)),
        (
            "[PARSE_SYNTAX_ERROR] Syntax error at 'FORM'. (line 1, pos 9)\n== SQL ==",
            (1, 10),
        ),
        ("=== Streaming Query ===\nProject (line 3, position 4)", None),
        ("[DIVIDE_BY_ZERO] …\n== SQL of VIEW v (line 7, position 3) ==\na / b\n", None),
        ("Division by zero.", None),
    ],
)
def test_the_place_of_an_error_in_sql_counts_from_one(
    text: str, place: tuple[int, int] | None
) -> None:
    assert sql_position("", text) == place
