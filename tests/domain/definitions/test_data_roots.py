"""In which folders and URL prefixes a definition may read and write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.definitions.allowed_paths import (
    AllowedPaths,
    fixed_part,
    lies_in,
    parse_given_root,
    places,
    root_of,
)
from queries.domain.definitions.locations import NotALocation
from queries.domain.definitions.parsing import parse_query
from queries.domain.errors import Invalid

ROOTS = AllowedPaths(
    roots=("file:///data", "file:///srv/headgate/data", "s3a://bucket/in", "file:///opt"),
    own=("file:///srv/headgate", "file:///opt/headgate"),
)
LINKS = {"/data/link": "/srv/headgate/secrets", "/data/inner": "/data/other"}


def follow(path: str) -> str:
    for link, target in LINKS.items():
        if f"{path}/".startswith(f"{link}/"):
            return target + path[len(link) :]
    return path


def refusal(text: str, roots: AllowedPaths = ROOTS) -> str:
    found = roots.problem("sources.0.options.path", text, follow)
    return found.message if found else ""


@pytest.mark.parametrize(
    "text",
    ["/data", "/data/flights", "/data/flights/*.json", "/data/{a,b}/c", "file:///data/x"]
    + ["/srv/headgate/data/x", "s3a://bucket/in/2026/*", "/data/inner/x", "/opt/other"]
    + ["/data/a..b/c"],
)
def test_what_lies_in_a_root_is_allowed(text: str) -> None:
    assert refusal(text) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/etc/passwd", "is outside the allowed paths."),
        ("/database", "is outside the allowed paths."),
        ("/dat*/x", "is the root of a file system."),
        ("/*", "is the root of a file system."),
        ("s3a://bucket/inner", "is outside the allowed paths."),
        ("s3a://other/in/x", "is outside the allowed paths."),
        ("hdfs://nn:8020/data", "is outside the allowed paths."),
        ("/data/../etc/passwd", 'contains "..".'),
        ("/data/{x,..}/etc", 'contains "..".'),
        ("/data/{..}/etc", 'contains "..".'),
        ("/data/\\.\\./etc", "contains a backslash."),
        ("/data/link/secret_key", "is outside the allowed paths."),
        ("/data/link/*", "is outside the allowed paths."),
        ("/srv/headgate/headgate.sqlite3", "is outside the allowed paths."),
        ("/srv/headgate/data*", "is outside the allowed paths."),
        ("/opt/headgate/x.py", "belongs to Headgate itself."),
        ("/opt", "contains file:///opt/headgate, which belongs to Headgate itself."),
        ("/opt/*/x.py", "contains file:///opt/headgate, which belongs to Headgate itself."),
        ("file://elsewhere/data", "names the host elsewhere"),
        ("data/x", "is not absolute."),
    ],
)
def test_what_does_not_is_refused_with_the_reason(text: str, why: str) -> None:
    assert refusal(text).startswith(why)


def test_a_root_of_everything_still_leaves_out_what_is_headgates() -> None:
    whole = AllowedPaths(roots=("file://",), own=("file:///srv/headgate",))
    assert refusal("/etc/passwd", whole) == ""
    assert refusal("/srv/headgate/x", whole) == "belongs to Headgate itself."
    assert refusal("/srv", whole).startswith("contains file:///srv/headgate")
    assert refusal("s3a://bucket/x", whole) == "is outside the allowed paths."


def test_the_way_out_names_some_roots() -> None:
    assert ROOTS.way_out == (
        "Use a folder in /data, /srv/headgate/data, s3a://bucket/in, /opt, or ask an admin to "
        "allow the path for the application: Settings → Allowed paths "
        "(HEADGATE_ALLOWED_PATHS applies to all)."
    )
    many = AllowedPaths(roots=tuple(f"file:///data{n}" for n in range(9)))
    assert "/data3, …, or ask" in many.way_out


_names = st.text(alphabet="ab.*?{},[]\\-", min_size=1, max_size=6)


@given(st.lists(_names, min_size=1, max_size=5))
def test_nothing_that_is_allowed_can_lead_out_of_its_root(parts: list[str]) -> None:
    text = "/data/" + "/".join(parts)
    try:
        fixed = fixed_part(text)
    except NotALocation:
        return
    assert fixed == "file:///data" or fixed.startswith("file:///data/")
    assert "/../" not in f"{text}/"


def test_every_place_of_a_definition_is_found() -> None:
    spec = parse_query(
        {
            "kind": "sql",
            "sources": [
                {
                    "name": "flights",
                    "format": "json",
                    "schema": "a INT",
                    "options": {"PATH": "/a", "sourceArchiveDir": "/b", "maxFilesPerTrigger": "1"},
                }
            ],
            "tables": [{"name": "t", "format": "csv", "options": {"path": "/c"}}],
            "sql": "SELECT * FROM flights JOIN json.`/d/*` d ON d.a = t.a JOIN text.`file:/e`",
            "sink": {"format": "parquet", "options": {"path": "/f"}},
            "conf": {"spark.sql.catalog.lake.warehouse": "/g", "spark.sql.shuffle.partitions": "2"},
            "schedule": {"files": "/h"},
        }
    )
    assert sorted(places(spec)) == [
        ("conf.spark.sql.catalog.lake.warehouse", "/g"),
        ("schedule.files", "/h"),
        ("sink.options.path", "/f"),
        ("sources.0.options.PATH", "/a"),
        ("sources.0.options.sourceArchiveDir", "/b"),
        ("sql", "/d/*"),
        ("sql", "file:/e"),
        ("tables.0.options.path", "/c"),
    ]
    python = parse_query({"kind": "python", "function": "jobs:make"})
    assert list(places(python)) == []


@pytest.mark.parametrize(
    ("text", "root"),
    [
        ("/data/in/", "/data/in"),
        ("file:///data", "/data"),
        ("/", "/"),
        ("S3A://bucket/", "s3a://bucket"),
        ("hdfs://name:9000/in", "hdfs://name:9000/in"),
    ],
)
def test_a_given_root_is_read_as_a_path_or_a_url(text: str, root: str) -> None:
    assert parse_given_root({"application": "a", "path": text}).path == root


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        ({"application": " ", "path": "data"}, ["application", "path"]),
        ({"application": "a", "path": "/data/*"}, ["path"]),
        ({"application": "a", "path": "s3a://buck*t"}, ["path"]),
        ({"application": "a"}, ["path"]),
    ],
)
def test_one_that_is_none_is_refused_by_its_field(raw: dict[str, str], fields: list[str]) -> None:
    with pytest.raises(Invalid) as refused:
        parse_given_root(raw)
    assert [one.field for one in refused.value.problems] == fields


def test_a_bucket_as_a_whole_holds_all_that_is_in_it() -> None:
    bucket = AllowedPaths(roots=(root_of("s3a://bucket"),))
    assert refusal("s3a://bucket/a/b", bucket) == ""
    assert refusal("s3a://bucket2/a", bucket) == "is outside the allowed paths."


def test_whether_a_location_lies_in_some_folders() -> None:
    assert lies_in("file:///a/b", ("file:///a",))
    assert not lies_in("file:///ab", ("file:///a",))
