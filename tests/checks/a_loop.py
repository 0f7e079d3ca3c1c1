"""A test that fails in two of its rounds, for `test_failures_at_the_end`."""

import pytest


def test_a_loop(subtests: pytest.Subtests) -> None:
    for number in range(6):
        with subtests.test(f"two of {number}"):
            assert number < 4
