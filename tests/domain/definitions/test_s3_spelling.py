"""EMR's `s3://` becomes `s3a://` wherever a definition names a path."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.allowed_paths import parse_given_root
from queries.domain.definitions.locations import (
    as_s3a,
    canonical,
    normalized_location,
    s3a_notes,
    with_s3a,
)

keys = st.text("abc/=? ", min_size=1, max_size=12).map(lambda key: f"k{key}")
schemes = st.sampled_from(["s3", "S3", "s3a", "hdfs", "file", "s3n", "gs"])
paths = st.builds(lambda scheme, key: f"{scheme}://bucket/{key}", schemes, keys)
texts = st.one_of(st.text(max_size=12), paths)
FIELDS = ["path", "conf", "checkpoint", "files", "params", "sql", "arguments", "env"]
definitions: st.SearchStrategy[Any] = st.recursive(
    st.one_of(texts, st.none(), st.integers()),
    lambda part: st.one_of(
        st.lists(part, max_size=3), st.dictionaries(st.sampled_from(FIELDS), part, max_size=3)
    ),
    max_leaves=8,
)


@given(texts)
def test_only_the_scheme_changes_and_a_second_time_changes_nothing(text: str) -> None:
    path = as_s3a(text)
    assert as_s3a(path) == path
    if text.lower().startswith("s3://"):
        assert path == f"s3a{text[2:]}"
    elif not text.strip().lower().startswith("s3://"):
        assert path == text


@given(keys)
def test_the_new_name_is_of_the_same_place(key: str) -> None:
    old = f"s3://bucket/{key.replace('?', '')}"
    assert canonical(as_s3a(old)).startswith("s3a://")
    assert normalized_location(canonical(old)) == normalized_location(canonical(as_s3a(old)))


def _kept(part: Any) -> list[str]:
    """Return the paths in EMR's spelling that are left outside of the author's own text."""
    if isinstance(part, dict):
        own = {"params", "sql", "env"}
        return [one for name, value in part.items() if name not in own for one in _kept(value)]
    if isinstance(part, list):
        return [one for value in part for one in _kept(value)]
    return [part] if isinstance(part, str) and part.strip().lower().startswith("s3://") else []


def test_each_stored_path_is_noted_by_its_field() -> None:
    notes = s3a_notes({"sources": [{"options": {"path": "s3://lake/in"}}], "sql": "s3://kept"})
    assert [note.split(" is stored")[0] for note in notes] == ["sources.0.options.path"]


@given(definitions)
def test_each_path_that_changes_is_noted_and_none_is_left(definition: Any) -> None:
    notes: list[str] = []
    stored = with_s3a(definition, notes)
    assert len(notes) == len(_kept(definition))
    assert _kept(stored) == []
    again: list[str] = []
    assert with_s3a(stored, again) == stored
    assert again == []


def test_sql_parameters_and_a_scripts_arguments_are_the_authors_own() -> None:
    own = {
        "sql": "s3://bucket/a",
        "params": {"path": "s3://bucket/a"},
        "script": {"arguments": ["s3://bucket/a"]},
        "env": {"IN": "s3://bucket/a"},
    }
    assert with_s3a(own, []) == own


@pytest.mark.parametrize("path", ["s3://lake", "s3://lake/in/"])
def test_an_allowed_path_is_stored_in_hadoops_spelling(path: str) -> None:
    stored = parse_given_root({"application": "flights", "path": path}).path
    assert stored == f"s3a{path[2:].rstrip('/')}"
