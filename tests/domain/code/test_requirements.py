"""A requirements text asks for names and versions; everything else is refused by its line."""

import pytest

from queries.domain.code.references import read

#: line -> a part of what is said about it.
BAD = {
    "-e .": "an installer option",
    "--editable=git+https://example.org/x": "an installer option",
    "-r other.txt": "an installer option",
    "-c limits.txt": "an installer option",
    "--index-url https://example.org/simple": "an installer option",
    "-i https://example.org/simple": "an installer option",
    "--extra-index-url=https://example.org/simple": "an installer option",
    "--find-links /tmp/wheels": "an installer option",
    "--no-binary :all:": "an installer option",
    "--trusted-host example.org": "an installer option",
    "--pre": "an installer option",
    "https://example.org/x-1.0-py3-none-any.whl": "is a URL",
    "http://user:hunter2@example.org/x.whl": "is a URL",
    "x @ https://example.org/x.whl": "is a URL",
    "x @ file:///etc/passwd": "is a URL",
    "x@file:/etc/passwd": "is a URL",
    "git+ssh://git@example.org/x": "is a URL",
    "git+file:/srv/x": "is a URL",
    "/srv/x": "is a file or folder",
    "./x": "is a file or folder",
    "../x": "is a file or folder",
    "~/x": "is a file or folder",
    "C:\\x": "is a file or folder",
    "x-1.0-py3-none-any.whl": "is a file or folder",
    "wheels/x.tar.gz": "is a file or folder",
    "requests==2.0 \\": "continues on the next line",
    "requests==2.0 --hash=sha256:0": "contains an option",
    "requests =< 2": "is not a valid requirement",
    "re quests": "is not a valid requirement",
    "${HOME}": "is not a valid requirement",
    "requests; python_version > ": "is not a valid requirement",
    "x" * 300: "is too long",
    "x" + ",".join(f"=={n}" for n in range(200)): "is too long",
    "requests\x07": "a control character",
}


@pytest.mark.guarantee("G-CODE-3")
@pytest.mark.parametrize("line", BAD)
def test_a_line_that_is_no_wish_is_refused_with_its_way_out(line: str) -> None:
    wanted = read(f"pandas\n{line}\n")
    (problem,) = wanted.problems
    assert BAD[line] in problem.message
    assert problem.field == "packages.1"
    assert problem.way_out
    assert "hunter2" not in problem.value


def test_wishes_are_read_in_one_form() -> None:
    wanted = read("# what it imports\nRequests[socks] >=2,<3  # http\n\n\tattrs==23.1\n")
    assert wanted.problems == ()
    assert wanted.lines == ("Requests[socks]<3,>=2", "attrs==23.1")


def test_a_package_is_asked_for_once() -> None:
    assert read("requests==2\nrequests==2").problems == ()
    (twice,) = read("requests==2\nRequests==3").problems
    assert "another line that requires" in twice.message
    both = 'requests==2; python_version<"3.12"\nrequests==3; python_version>="3.12"'
    assert read(both).problems == ()


def test_a_text_has_its_limits() -> None:
    assert "more than 200" in read("\n".join(f"p{n}" for n in range(201))).problems[0].message
    assert "more than 200" in read("#" * 20_001).problems[0].message
    assert read("").lines == ()
    assert read("b\na").text == "a\nb\n"
