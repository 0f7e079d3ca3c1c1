"""A long poll ends in time, whatever its listener to changes does."""

import asyncio

import pytest

from queries.api.supervision import operations


def test_a_listener_that_swallows_its_cancel_holds_up_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    swallowed: list[str] = []

    async def stubborn(topic: str, changed: asyncio.Event) -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if swallowed:
                    raise
                swallowed.append(topic)

    async def story() -> None:
        async with operations._changes("operation:1"):
            await asyncio.sleep(0)

    monkeypatch.setattr(operations, "_listen", stubborn)
    monkeypatch.setattr(operations, "CANCEL_LIMIT_S", 0.1)
    asyncio.run(asyncio.wait_for(story(), timeout=60))
    assert swallowed == ["operation:1"]
