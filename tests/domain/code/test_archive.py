"""Members of an archive are judged by name, kind and size; the whole tables are in tests/api."""

import pytest

from queries.domain.code.archives import Judge, Member, named, origin, sha256_of, shown
from queries.domain.errors import Invalid


def _judge(*members: Member, most_bytes: int = 100, most_files: int = 3) -> list[str]:
    judge = Judge(most_bytes=most_bytes, most_files=most_files)
    return [judge.judge(one) for one in members]


def _said(*members: Member) -> str:
    with pytest.raises(Invalid) as refused:
        _judge(*members)
    (problem,) = refused.value.problems
    assert problem.way_out
    return f"{problem.value} {problem.message}"


def _file(name: str, size: int = 1) -> Member:
    return Member(name, "file", size)


def _folder(name: str) -> Member:
    return Member(name, "folder")


def test_names_lead_below_the_folder() -> None:
    paths = _judge(_folder("./"), _folder("src/"), _file("./src/a.py"), _file("b//c.py"))
    assert paths == ["", "src", "src/a.py", "b/c.py"]


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([_file("/a")], "starts with /"),
        ([_file("a/../b")], "points outside"),
        ([_folder("..")], "points outside"),
        ([_file("a\x00b")], "control character"),
        ([_file("a\\b")], "backslash"),
        ([_file("\udcff")], "not valid UTF-8"),
        ([_file("./")], "has no name"),
        ([_file("a" * 256)], "too long"),
        ([_file("a/" * 41 + "b")], "too long"),
        ([_file("a" * 200 + "/" + "b" * 200 + "/" + "c/" * 350)], "too long"),
        ([Member("a", "a device")], "is a device"),
        ([_file("a"), _file("./a")], "appears twice"),
        ([_file("a"), _file("a/b")], "a file and a folder"),
        ([_file("a"), _folder("a")], "a file and a folder"),
        ([_folder("a"), _file("a")], "a file and a folder"),
        ([_file("a", 60), _file("b", 41)], "101 bytes"),
        ([_file(name) for name in "abcd"], "4 files"),
        ([_folder(f"f{n}") for n in range(13)], " files."),
    ],
)
def test_a_member_that_may_not_be_a_file_is_refused(members: list[Member], said: str) -> None:
    assert said in _said(*members)


def test_a_name_is_shown_as_text_that_every_page_takes() -> None:
    assert shown("a\x00\udcffb") == "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b"
    assert len(shown("a" * 900)) == 200


def test_a_digest_is_written_in_one_form() -> None:
    assert sha256_of(named("a" * 64)) == "a" * 64
    for text in ("a" * 64, "sha256:abc", f"sha256:{'A' * 64}", f"sha256:{'a' * 64}\n"):
        assert sha256_of(text) is None


def test_a_run_says_where_its_code_is_from() -> None:
    assert origin({}) == origin({"code": None}) == origin({"code": {"git": ""}}) == ""
    assert origin({"code": {"upload": f"sha256:{'a' * 64}"}}) == f"upload sha256:{'a' * 12}"
    git = {"git": "https://git.example.org/x", "commit": "0" * 40}
    assert origin({"code": git}) == "https://git.example.org/x at 000000000000"
    assert origin({"code": {**git, "folder": "jobs"}}).endswith("at 000000000000, folder jobs")
