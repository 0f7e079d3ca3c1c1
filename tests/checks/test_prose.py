"""Pages have no line that was left unwrapped, and none of the phrases in prose.toml."""

import re
import tomllib
from bisect import bisect
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
RULES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("prose.toml").read_text())
LONGEST: int = RULES["lines"]["longest"]
PAGES = sorted(
    str(page.relative_to(REPOSITORY))
    for folder in (".", "docs", "docs/decisions")
    for page in (REPOSITORY / folder).glob("*.md")
)
ITEM = re.compile(r" {0,3}([-*]|\d+\.) ")
FENCE = re.compile(r" *(```|~~~)")
#: Lines that cannot be wrapped: headings, table rows, and a lone link or image.
UNWRAPPED = re.compile(r"#|\s*\||\s*([-*] )?!?\[[^\]]*\]\([^)]*\)[.,:;]?$")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase that pages do not use."""

    pattern: re.Pattern[str]
    use: str
    exempt: tuple[str, ...]

    def applies_to(self, page: str) -> bool:
        return not any(fnmatch(page, pattern) for pattern in self.exempt)


PHRASES = [
    Phrase(
        re.compile(rule["find"], 0 if rule.get("case") else re.IGNORECASE),
        rule["use"],
        tuple(rule.get("except", ())),
    )
    for rule in RULES["phrase"]
]


def without_code(text: str) -> list[str]:
    """Return a page's lines; those of code blocks and comments are empty."""
    text = re.sub(r"<!--.*?-->", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.S)
    lines, fence, in_list = [], "", False
    for line in text.split("\n"):
        mark = FENCE.match(line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
            line = ""
        if line.strip() and not line.startswith(" "):
            in_list = False
        in_list = in_list or bool(ITEM.match(line))
        # Within a list, indented lines belong to its items.
        lines.append("" if fence or (line.startswith("    ") and not in_list) else line)
    return lines


def long_lines(text: str) -> list[int]:
    """Return the numbers of lines that should be wrapped."""
    return [
        number
        for number, line in enumerate(without_code(text), start=1)
        if len(line) > LONGEST and not UNWRAPPED.match(line)
    ]


def phrases(text: str, page: str) -> list[str]:
    """Return the phrases that a page uses, each with its line and with what to write instead."""
    searched = re.sub(r"\]\([^)\n]*\)", "]", "\n".join(without_code(text)))
    searched = re.sub(r"`[^`]*`", lambda code: "`" + "\n" * code[0].count("\n"), searched)
    flat, starts = "", []
    for line in searched.split("\n"):
        starts.append(len(flat))
        flat += f"{line.strip()} " if line.strip() else "\n"
    return [
        f'{page}:{bisect(starts, match.start())}: "{match[0]}": {phrase.use}'
        for phrase in PHRASES
        if phrase.applies_to(page)
        for match in phrase.pattern.finditer(flat)
    ]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_line_that_was_left_unwrapped(name: str) -> None:
    assert long_lines((REPOSITORY / name).read_text()) == [], f"wrap these lines of {name}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_uses_the_words_of_the_field(name: str) -> None:
    found = phrases((REPOSITORY / name).read_text(), name)
    assert found == [], "\n" + "\n".join(found)


def test_every_page_is_read() -> None:
    assert {"README.md", "CHANGELOG.md", "docs/README.md"} <= set(PAGES)
    assert len([page for page in PAGES if page.startswith("docs/decisions/")]) > 40


def test_every_exception_is_used_and_has_a_reason() -> None:
    idle = []
    for rule, phrase in zip(RULES["phrase"], PHRASES, strict=True):
        assert bool(rule.get("except")) == bool(rule.get("why")), rule["find"]
        for pattern in phrase.exempt:
            pages = [REPOSITORY / page for page in PAGES if fnmatch(page, pattern)]
            if not any(phrase.pattern.search(page.read_text()) for page in pages):
                idle.append(f"{phrase.pattern.pattern}: {pattern}")
    assert idle == []


LONG = "word " * 26


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (LONG, [1]),
        ("short\n\n- " + LONG, [3]),
        ("1. Do:\n\n    " + LONG, [3]),  # an item's paragraph
        ("# " + LONG, []),
        (f"| {LONG} |", []),
        (f"```\n{LONG}\n```\n", []),
        (f"  ~~~sh\n```\n{LONG}\n  ~~~\n{LONG}", [5]),
        ("Run:\n\n    " + LONG, []),
        (f"<!-- {LONG}\n-->\n{LONG}", [3]),
        (f"![{LONG}](docs/images/queries.png)", []),
        (f"- [{LONG}](docs/alerts.md).", []),
        (f"- [{LONG}](docs/alerts.md), and more", [1]),
    ],
)
def test_a_line_that_should_be_wrapped_is_found(text: str, lines: list[int]) -> None:
    assert long_lines(text) == lines


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is told.", ["told"]),
        ("A list:\n\n- one is\n  tried.", ["is tried"]),
        ("| it was | told |", ["told"]),
        ("The start is refused.", ["refused"]),
        ("Connection refused", []),
        ("BROKEN, broken", ["BROKEN"]),
        ("Set `HEADGATE_WALLS` or [this](docs/walls.md).", []),
        ("```\ntold\n```", []),
        ("A call is tried again. It stands for one. There is no query.", []),
        ("so many rows, as many as before", ["so many"]),
    ],
)
def test_a_phrase_is_found(text: str, found: list[str]) -> None:
    assert [re.findall('"(.*?)"', line)[0] for line in phrases(text, "docs/x.md")] == found


def test_a_phrase_is_found_on_its_line() -> None:
    text = "# One\n\nTwo lines\nof `code\nspan` and it is\ntold."
    assert [line.partition(": ")[0] for line in phrases(text, "a.md")] == ["a.md:6"]
