"""Fixtures of the listeners' tests."""

from tests.conftest_redis import make_ingester, nudged, redis_client, valkey

__all__ = ["make_ingester", "nudged", "redis_client", "valkey"]
