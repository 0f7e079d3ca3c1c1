"""A web request searches 64 KiB for secrets itself, and a child the rest, or it is not shown."""

import sys
from collections.abc import Iterator

import pytest

from controlplane.masking import IN_REQUEST, MaskingFailed, MaskingProcess, WebSearch
from headgate_ground.masking import MASK, LocalSearcher, mask, mask_text, searched_by, secrets_in

SECRET = "password=hunter2hunter2"
LONG = f"{SECRET} é \u2028 \0 \ud800 {'x' * IN_REQUEST}"


@pytest.fixture
def process() -> Iterator[MaskingProcess]:
    process = MaskingProcess()
    yield process
    process.close()


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the lengths of the texts that this process has searched."""
    lengths: list[int] = []
    real = LocalSearcher.mask

    def noted(self: LocalSearcher, text: str) -> str:
        lengths.append(len(text))
        return real(self, text)

    monkeypatch.setattr(LocalSearcher, "mask", noted)
    return lengths


def test_a_long_text_is_masked_by_the_child_as_it_is_here(
    process: MaskingProcess, searched: list[int]
) -> None:
    here = mask_text(LONG)
    assert MASK in here
    searched.clear()
    with searched_by(WebSearch(process)):
        assert mask_text(LONG) == here
        assert secrets_in({"text": LONG}) == {"hunter2hunter2"}
    assert searched == []


@pytest.mark.guarantee("G-SECRET-6")
def test_many_short_texts_are_searched_here_up_to_the_limit(
    process: MaskingProcess, searched: list[int]
) -> None:
    text = "x" * 1000 + SECRET
    with searched_by(WebSearch(process)):
        shown = mask([text] * 100)
    assert shown == ["x" * 1000 + f"password={MASK}"] * 100
    assert IN_REQUEST - len(text) < sum(searched) <= IN_REQUEST


def test_outside_of_a_request_texts_are_searched_here(searched: list[int]) -> None:
    with searched_by(WebSearch()):
        pass
    mask_text(LONG)
    assert searched == [len(LONG)]


@pytest.mark.guarantee("G-SECRET-6")
@pytest.mark.parametrize(
    "code", ["import sys; sys.stdin.read()", "print('no JSON', flush=True); input()", "pass"]
)
def test_a_text_that_is_not_searched_in_time_is_not_shown(code: str) -> None:
    process = MaskingProcess((sys.executable, "-c", code))
    with pytest.raises(MaskingFailed):
        process.request("mask", LONG * 4, within_s=1.0)
    process.close()


def test_without_an_answer_a_note_is_shown_and_all_of_a_value_is_secret() -> None:
    process = MaskingProcess(("/no/such/program",))
    with searched_by(WebSearch(process)):
        assert mask_text(LONG) == (
            f"(Not shown: {len(LONG):,} characters could not be searched for secrets in time.)"
        )
        assert secrets_in({"text": LONG}) == {LONG}


def test_a_child_that_was_killed_is_started_again(process: MaskingProcess) -> None:
    assert process.request("mask", SECRET) == f"password={MASK}"
    child = process._child
    assert child is not None
    child.kill()
    child.wait()
    assert process.request("mask", SECRET) == f"password={MASK}"
