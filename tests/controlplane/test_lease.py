"""A name that one worker holds at a time, whoever has it."""

import pytest

from controlplane.nudge import lease
from tests.conftest_redis import ValkeyServer, valkey

__all__ = ["valkey"]


@pytest.mark.redis
def test_a_name_is_held_by_one_at_a_time_and_given_back(valkey: ValkeyServer) -> None:
    with lease("looks", limit_s=60) as first, lease("looks", limit_s=60) as second:
        assert (first, second) == (True, False)
        with lease("other", limit_s=60) as other:
            assert other
    with lease("looks", limit_s=60) as again:
        assert again


@pytest.mark.redis
def test_a_lease_that_ran_out_takes_nothing_from_its_next_holder(valkey: ValkeyServer) -> None:
    with lease("looks", limit_s=60) as first:
        assert first
        with valkey.client() as client:
            for key in client.keys("*lease:looks"):
                client.set(key, "another's")
    with lease("looks", limit_s=60) as again:
        assert not again


def test_without_redis_nobody_holds_anything() -> None:
    with lease("looks", limit_s=60) as held:
        assert not held
