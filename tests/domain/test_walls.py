"""Which walls a host's drivers get, and what is said about them."""

from dataclasses import replace

import pytest

from queries.domain.hosts import Mode, choose

LACKS = "bubblewrap is not installed; it is in the bubblewrap package."


@pytest.mark.parametrize(
    ("asked", "lacks", "mode", "refused"),
    [
        ("auto", "", Mode.BUBBLEWRAP, False),
        ("auto", LACKS, Mode.NEITHER, False),
        ("bubblewrap", "", Mode.BUBBLEWRAP, False),
        ("bubblewrap", LACKS, Mode.BUBBLEWRAP, True),
        ("neither", "", Mode.NEITHER, False),
        ("neither", LACKS, Mode.NEITHER, False),
    ],
)
def test_walls_are_used_where_they_were_proven(
    asked: str, lacks: str, mode: Mode, refused: bool
) -> None:
    choice = choose(asked, lacks)
    assert (choice.mode, choice.refused) == (mode, refused)


def test_each_choice_says_what_an_author_can_do_and_what_is_missing() -> None:
    assert choose("auto").told.startswith(
        "Isolation of drivers: bubblewrap. Each driver sees its own"
    )
    fallen_back = choose("auto", LACKS).told
    assert "Isolation of drivers: neither. Drivers run as the worker's account" in fallen_back
    assert LACKS in fallen_back
    refused = choose("bubblewrap", LACKS).told
    assert "no drivers are started" in refused
    assert LACKS in refused
    assert LACKS not in choose("neither", LACKS).told


@pytest.mark.parametrize("mode", Mode)
def test_a_worker_that_is_root_is_named_with_what_that_means(mode: Mode) -> None:
    choice = choose(mode)
    assert "runs as root" not in choice.told
    told = replace(choice, root=True).told
    assert told.startswith(choice.told)
    assert "The worker runs as root" in told


@pytest.mark.guarantee("G-ISOLATION-1")
@pytest.mark.parametrize("asked", ["auto", "bubblewrap"])
def test_a_test_that_did_not_finish_starts_no_driver_without_walls(asked: str) -> None:
    choice = choose(asked, "the trial was killed.", late=True)
    assert choice.refused
    assert choice.mode is not Mode.NEITHER
    assert choice.told.startswith(
        "The isolation of drivers could not be tested: the trial was killed. No drivers are"
    )


@pytest.mark.parametrize("lacks", ["", LACKS])
@pytest.mark.parametrize("late", [False, True])
def test_a_kind_of_walls_that_is_gone_is_not_replaced_by_another(lacks: str, late: bool) -> None:
    with pytest.raises(ValueError, match="accounts"):
        choose("accounts", lacks, late=late)
