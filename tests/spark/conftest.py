"""Fixtures of the tests that start a real Spark driver."""

from tests.conftest_redis import make_ingester, nudged, redis_client, valkey

__all__ = ["make_ingester", "nudged", "redis_client", "valkey"]
