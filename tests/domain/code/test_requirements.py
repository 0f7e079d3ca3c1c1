"""A requirements text asks for names and versions; everything else is refused by its line."""

import pytest

from queries.domain.code.requirements import read

#: line -> a part of what is said about it.
BAD = {
    "-e .": "an option of the installer",
    "--editable=git+https://example.org/x": "an option of the installer",
    "-r other.txt": "an option of the installer",
    "-c limits.txt": "an option of the installer",
    "--index-url https://example.org/simple": "an option of the installer",
    "-i https://example.org/simple": "an option of the installer",
    "--extra-index-url=https://example.org/simple": "an option of the installer",
    "--find-links /tmp/wheels": "an option of the installer",
    "--no-binary :all:": "an option of the installer",
    "--trusted-host example.org": "an option of the installer",
    "--pre": "an option of the installer",
    "https://example.org/x-1.0-py3-none-any.whl": "names a URL",
    "http://user:hunter2@example.org/x.whl": "names a URL",
    "x @ https://example.org/x.whl": "names a URL",
    "x @ file:///etc/passwd": "names a URL",
    "x@file:/etc/passwd": "names a URL",
    "git+ssh://git@example.org/x": "names a URL",
    "git+file:/srv/x": "names a URL",
    "/srv/x": "names a file or folder",
    "./x": "names a file or folder",
    "../x": "names a file or folder",
    "~/x": "names a file or folder",
    "C:\\x": "names a file or folder",
    "x-1.0-py3-none-any.whl": "names a file or folder",
    "wheels/x.tar.gz": "names a file or folder",
    "requests==2.0 \\": "goes on in the next line",
    "requests==2.0 --hash=sha256:0": "contains an option",
    "requests =< 2": "is not a requirement",
    "re quests": "is not a requirement",
    "${HOME}": "is not a requirement",
    "requests; python_version > ": "is not a requirement",
    "x" * 300: "is too long",
    "x" + ",".join(f"=={n}" for n in range(200)): "is too long",
    "requests\x07": "a control character",
}


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
    assert "another line asks" in twice.message
    both = 'requests==2; python_version<"3.12"\nrequests==3; python_version>="3.12"'
    assert read(both).problems == ()


def test_a_text_has_its_limits() -> None:
    assert "more than 200" in read("\n".join(f"p{n}" for n in range(201))).problems[0].message
    assert "more than 200" in read("#" * 20_001).problems[0].message
    assert read("").lines == ()
    assert read("b\na").text == "a\nb\n"
