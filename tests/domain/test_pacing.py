"""What has changed is shown at once after a pause, then four times a second, and always in full."""

from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queries.domain.readings import EVERY_S, RefreshPace, page_due_at

TIMES = st.lists(st.integers(0, 4_000), max_size=60).map(sorted)  # milliseconds of changes
DRAWS = st.integers(0, 300)  # milliseconds that a drawing takes
TINY = 1e-9


@dataclass
class Shown:
    """A page with one topic, played by a clock: what was shown, and when."""

    draw_s: float
    topic: RefreshPace = field(default_factory=RefreshPace)
    page: RefreshPace = field(default_factory=RefreshPace)
    value: int = 0  # how often it has changed
    now: float = 0.0
    shown: list[tuple[float, int]] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)  # changes during a drawing

    def run(self, changes: list[float]) -> None:
        """Play the changes to their end."""
        self.waiting = list(changes)
        while True:
            due_at = page_due_at(self.page, [self.topic])
            following = self.waiting[0] if self.waiting else inf
            if due_at == following == inf:
                return
            if following <= due_at:
                self._change(following)
                continue
            self.now = max(self.now, due_at)
            self._draw()

    def _change(self, at: float) -> None:
        del self.waiting[0]
        self.now, self.value = max(self.now, at), self.value + 1
        self.topic = self.topic.changed(at)

    def _draw(self) -> None:
        drawn, self.topic = self.value, self.topic.shown(self.now)
        until = self.now + self.draw_s
        while self.waiting and self.waiting[0] < until:
            self._change(self.waiting[0])
        self.now = until
        self.page = self.page.changed(until).shown(until)
        self.shown.append((until, drawn))


@given(TIMES, DRAWS)
def test_the_last_value_is_shown_whatever_came_before(changes: list[int], draw_ms: int) -> None:
    played = Shown(draw_ms / 1000)
    played.run([each / 1000 for each in changes])
    assert [value for _, value in played.shown][-1:] == ([len(changes)] if changes else [])


@given(TIMES, DRAWS)
def test_a_page_is_shown_at_most_four_times_in_any_second(changes: list[int], draw_ms: int) -> None:
    played = Shown(draw_ms / 1000)
    played.run([each / 1000 for each in changes])
    times = [at for at, _ in played.shown]
    for first, fifth in zip(times, times[4:], strict=False):
        assert fifth - first >= 1 - TINY


@given(TIMES, DRAWS)
def test_a_change_after_a_pause_is_drawn_at_once_and_no_other_waits_long(
    changes: list[int], draw_ms: int
) -> None:
    played = Shown(draw_ms / 1000)
    played.run([each / 1000 for each in changes])
    for number, at in enumerate((each / 1000 for each in changes), start=1):
        shown_at = next(when for when, value in played.shown if value >= number)
        before = [when for when, _ in played.shown if when <= at]
        busy = any(when - played.draw_s < at < when for when, _ in played.shown)
        if not busy and (not before or at - before[-1] >= EVERY_S):
            assert shown_at - at <= played.draw_s + TINY
        # The drawing under way, a pause, and its own.
        assert shown_at - at <= 2 * played.draw_s + EVERY_S + TINY


def test_without_a_change_nothing_is_due() -> None:
    assert RefreshPace().due_at == inf
    assert RefreshPace().changed(3).shown(4).due_at == inf
    assert page_due_at(RefreshPace(), []) == page_due_at(RefreshPace(), [RefreshPace()]) == inf


@pytest.mark.parametrize(
    ("page", "topics", "due_at"),
    [
        (RefreshPace(), [RefreshPace(changed_at=5)], 5),
        (RefreshPace(shown_at=4.9), [RefreshPace(changed_at=5)], 4.9 + EVERY_S),
        (RefreshPace(), [RefreshPace(changed_at=5, shown_at=4.9), RefreshPace()], 4.9 + EVERY_S),
        (
            RefreshPace(changed_at=6),
            [RefreshPace(changed_at=7)],
            6,
        ),  # drawn for another page already
    ],
)
def test_a_page_waits_for_its_own_pause_and_for_that_of_what_it_shows(
    page: RefreshPace, topics: list[RefreshPace], due_at: float
) -> None:
    assert page_due_at(page, topics) == due_at


def test_the_oldest_change_counts() -> None:
    assert RefreshPace().changed(5).changed(3).changed(4).changed_at == 3
