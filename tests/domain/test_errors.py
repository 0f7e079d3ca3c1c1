"""What errors say by themselves."""

from queries.domain.errors import Busy, Unavailable


def test_a_busy_database_is_worth_another_try_in_seconds() -> None:
    error = Busy()
    assert isinstance(error, Unavailable)
    assert error.way_out == "Try again in a few seconds."
    assert 0 < error.retry_after_s < 60
