"""The chain of the audit log: whoever changes an entry breaks it, and the walk says where."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from queries.domain.access import (
    ACT_WORDS,
    BEGINNING,
    Act,
    Broken,
    Key,
    Link,
    Mark,
    is_sealed,
    walk,
)

KEY, OTHER = Key(b"ours"), Key(b"another")
KEYS = {KEY.name: KEY}


def chain(length: int, *, begin: Mark = BEGINNING, key: Key = KEY) -> list[Link]:
    links, mac = [], begin.mac
    for number in range(begin.number + 1, begin.number + length + 1):
        content = {"actor": "ada", "details": {"nth": number}}
        seal = key.seal(content)
        mac = key.link(mac, number, seal)
        links.append(Link(number, key.name, content, seal, mac))
    return links


def mark(link: Link) -> Mark:
    return Mark(link.number, link.mac)


def test_an_untouched_chain_ends_at_its_head() -> None:
    links = chain(3)
    end = walk(links, begin=BEGINNING, head=mark(links[-1]), keys=KEYS, earlier=mark(links[1]))
    assert end == mark(links[-1])


def test_a_chain_goes_on_from_its_anchor() -> None:
    links = chain(5)
    head, begin = mark(links[-1]), mark(links[1])
    assert walk(links[2:], begin=begin, head=head, keys=KEYS, earlier=mark(links[0])) == head


def test_an_empty_log_is_whole() -> None:
    assert walk([], begin=BEGINNING, head=BEGINNING, keys=KEYS) == BEGINNING


def _changed(links: list[Link]) -> list[Link]:
    return [links[0], replace(links[1], content={"actor": "eve"}), *links[2:]]


def _sealed_again(links: list[Link]) -> list[Link]:
    """Return what somebody writes who knows the form and has no key."""
    content = {"actor": "eve"}
    seal = OTHER.seal(content)
    mac = OTHER.link(links[0].mac, 2, seal)
    return [links[0], Link(2, KEY.name, content, seal, mac), *links[2:]]


def _moved(links: list[Link]) -> list[Link]:
    return [links[0], replace(links[2], number=2), replace(links[1], number=3), links[3]]


@pytest.mark.parametrize(
    ("attack", "number", "says"),
    [
        (_changed, 2, "its content was changed"),
        (_sealed_again, 2, "its content was changed"),
        (lambda links: [links[0], *links[2:]], 2, "missing"),
        (lambda links: [links[0], links[0], *links[1:]], 2, "appears twice"),
        (_moved, 2, "does not follow the entry before it"),
        (lambda links: links[:2], 3, "missing: 4 entries were written"),
        (lambda links: [replace(one, key=OTHER.name) for one in links], 1, "another key"),
    ],
)
def test_what_was_changed_is_named(
    attack: Callable[[list[Link]], list[Link]], number: int, says: str
) -> None:
    links = chain(4)
    with pytest.raises(Broken, match=says) as told:
        walk(attack(links), begin=BEGINNING, head=mark(links[-1]), keys=KEYS)
    assert told.value.number == number


def test_a_chain_cut_together_with_its_head_misses_the_exported_one() -> None:
    links = chain(4)
    with pytest.raises(Broken, match="entry 3: missing: the exported head is entry 4"):
        walk(
            links[:2],
            begin=BEGINNING,
            head=mark(links[1]),
            keys=KEYS,
            earlier=mark(links[3]),
        )


@pytest.mark.parametrize("which", ["head", "earlier"])
def test_a_head_of_another_chain_is_noticed(which: str) -> None:
    links = chain(2)
    given: Any = {"head": mark(links[-1]), "earlier": mark(links[0])}
    given[which] = replace(given[which], mac="f" * 64)
    with pytest.raises(Broken, match="its MAC differs from the one in the head"):
        walk(links, begin=BEGINNING, keys=KEYS, **given)


def test_entries_of_an_earlier_key_are_proved_with_it() -> None:
    before = chain(2, key=OTHER)
    links = [*before, *chain(2, begin=mark(before[-1]))]
    both = {**KEYS, OTHER.name: OTHER}
    assert walk(links, begin=BEGINNING, head=mark(links[-1]), keys=both) == mark(links[-1])


def test_a_seal_holds_for_its_content_and_key_alone() -> None:
    seal = KEY.seal({"actor": "ada"})
    assert is_sealed({"actor": "ada"}, seal, KEY)
    assert not is_sealed({"actor": "eve"}, seal, KEY)
    assert not is_sealed({"actor": "ada"}, seal, OTHER)


def test_every_act_has_words() -> None:
    assert set(ACT_WORDS) == set(Act)
