"""The watcher tells of a lasting trouble once, reminds, and tells of its end."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from queries.domain.alerts.forms import NotificationStep
from queries.domain.alerts.routing import (
    KINDS,
    Look,
    Patience,
    ProblemWatch,
    Saying,
    SelfCheck,
    drop_unreported,
    due_reports,
)

START = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
PATIENCE = Patience(
    trouble=timedelta(seconds=45), calm=timedelta(seconds=60), remind=timedelta(hours=4)
)


class Story:
    """Looks at given seconds, and what was told at each."""

    def __init__(self) -> None:
        self.watched: dict[str, ProblemWatch] = {}
        self.told: list[tuple[float, str, NotificationStep]] = []

    def look(self, at_s: float, **parts: Look) -> list[Saying]:
        seen = [SelfCheck(part, look, f"{part} is {look}") for part, look in parts.items()]
        now = START + timedelta(seconds=at_s)
        self.watched, sayings = due_reports(self.watched, seen, now=now, patience=PATIENCE)
        self.told += [(at_s, one.part, one.step) for one in sayings]
        return sayings


def test_a_trouble_is_told_once_it_has_lasted_and_its_end_once_that_has() -> None:
    story = Story()
    for at in (0, 30, 44):
        story.look(at, worker=Look.TROUBLE)
    story.look(46, worker=Look.TROUBLE)
    story.look(60, worker=Look.TROUBLE)
    story.look(70, worker=Look.WELL)
    story.look(129, worker=Look.WELL)
    story.look(131, worker=Look.WELL)
    assert story.told == [
        (46, "worker", NotificationStep.OPENED),
        (131, "worker", NotificationStep.RESOLVED),
    ]
    assert story.watched == {}


def test_a_short_trouble_is_not_told() -> None:
    story = Story()
    story.look(0, ticks=Look.TROUBLE)
    story.look(40, ticks=Look.WELL)
    story.look(50, ticks=Look.TROUBLE)
    story.look(90, ticks=Look.TROUBLE)
    assert story.told == []


def test_a_trouble_that_comes_and_goes_is_one() -> None:
    story = Story()
    story.look(0, redis=Look.TROUBLE)
    story.look(50, redis=Look.TROUBLE)
    for at in range(60, 600, 20):
        story.look(at, redis=Look.WELL if at % 40 else Look.TROUBLE)
    assert story.told == [(50, "redis", NotificationStep.OPENED)]


def test_a_long_trouble_is_told_again() -> None:
    story = Story()
    for minutes in range(0, 9 * 60, 10):
        story.look(60 * minutes, database=Look.TROUBLE)
    assert [step for _, _, step in story.told] == [
        NotificationStep.OPENED,
        NotificationStep.REMINDER,
        NotificationStep.REMINDER,
    ]


def test_what_another_trouble_hides_is_neither_in_trouble_nor_well() -> None:
    story = Story()
    story.look(0, worker=Look.TROUBLE)
    story.look(50, worker=Look.TROUBLE)
    story.look(60, redis=Look.TROUBLE, worker=Look.UNKNOWN)
    story.look(110, redis=Look.TROUBLE, worker=Look.UNKNOWN)
    story.look(500, redis=Look.TROUBLE)
    assert story.told == [
        (50, "worker", NotificationStep.OPENED),
        (110, "redis", NotificationStep.OPENED),
    ]


def test_the_watcher_leaves_to_incidents_what_they_can_tell() -> None:
    story = Story()
    for at in (0, 100, 200):
        story.look(at, worker=Look.WELL, ingester=Look.TROUBLE, disk=Look.TROUBLE)
    assert story.told == []
    for at in (300, 400):
        story.look(at, worker=Look.TROUBLE, ingester=Look.TROUBLE)
    assert {(part, step) for _, part, step in story.told} == {
        ("worker", NotificationStep.OPENED),
        ("ingester", NotificationStep.OPENED),
    }
    for at in (500, 600):  # what it has told of it follows to the end
        story.look(at, worker=Look.WELL, ingester=Look.WELL)
    assert story.told[-1] == (600, "ingester", NotificationStep.RESOLVED)


def test_a_watcher_that_starts_again_looks_for_itself_before_it_tells() -> None:
    story = Story()
    story.look(0, web=Look.TROUBLE, ticks=Look.TROUBLE)
    story.look(50, web=Look.TROUBLE)
    story.watched = drop_unreported(story.watched)
    assert list(story.watched) == ["web"]
    story.look(3000, ticks=Look.TROUBLE)
    assert story.told == [(50, "web", NotificationStep.OPENED)]


def test_parts_that_it_does_not_know_are_passed_over() -> None:
    story = Story()
    story.look(0, setup=Look.TROUBLE)
    assert story.look(1000, setup=Look.TROUBLE) == []


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4000),
            st.dictionaries(st.sampled_from(sorted(KINDS)), st.sampled_from(Look)),
        ),
        max_size=40,
    )
)
def test_each_part_is_told_of_in_turns(looks: list[tuple[int, dict[str, Look]]]) -> None:
    story, at = Story(), 0
    for pause, parts in looks:
        at += pause
        story.look(at, **parts)
    for part in KINDS:
        steps = [step for _, one, step in story.told if one == part]
        opened = 0
        for step in steps:
            if step is NotificationStep.OPENED:
                assert opened == 0
                opened = 1
            else:
                assert opened == 1
                opened = 0 if step is NotificationStep.RESOLVED else 1
