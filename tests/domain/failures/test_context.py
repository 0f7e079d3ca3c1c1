"""What explains a failure is left out where it cannot be read, whatever by."""

import pytest

from queries.domain.failures.error_text import left_out


@pytest.mark.parametrize("trouble", [MemoryError, RecursionError, OSError, ValueError])
def test_a_read_that_fails_is_left_out(trouble: type[Exception]) -> None:
    def read() -> int:
        raise trouble

    assert left_out(read, 7) == 7
    assert left_out(lambda: 3, 7) == 3


def test_an_end_that_is_asked_for_is_no_failure() -> None:
    def leaves() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        left_out(leaves, None)
