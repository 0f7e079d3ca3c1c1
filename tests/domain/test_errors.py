"""What errors say by themselves."""

from queries.domain.errors import Busy, TooMany, Unavailable


def test_a_busy_database_is_worth_another_try_in_seconds() -> None:
    error = Busy()
    assert isinstance(error, Unavailable)
    assert error.way_out == "Try again in a few seconds."
    assert 0 < error.retry_after_s < 60


def test_too_many_requests_say_when_the_next_one_is_taken() -> None:
    assert TooMany(retry_after_s=7).way_out == "Try again in 7 s."
    assert TooMany(way_out="Ask an admin.").way_out == "Ask an admin."
    assert str(TooMany()).startswith("You have sent too many requests within a minute.")
