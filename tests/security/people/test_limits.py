"""How much one person may have open at once."""

import asyncio
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient

from queries.views.console.fragments import Viewer
from queries.views.console.hub import hub
from queries.views.console.live import LIFE_S, STREAMS_AT_MOST

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.guarantee("G-LIMIT-5")
def test_a_person_has_so_many_streams_and_others_have_theirs(viewer: User, operator: User) -> None:
    async def story() -> list[tuple[int, str]]:
        found = []
        for _ in range(STREAMS_AT_MOST):
            hub().viewers.add(Viewer(viewer.pk))
        for person in (viewer, operator):
            client = AsyncClient()
            await client.aforce_login(person)
            answer: Any = await client.get("/live/", {"topics": "system"})
            found.append((answer.status_code, answer.get("Retry-After", "")))
            answer.close()
        hub().viewers.clear()
        return found

    assert asyncio.run(story()) == [(429, str(LIFE_S)), (200, "")]


def test_a_page_without_a_stream_still_asks(viewer: User) -> None:
    async def story() -> int:
        for _ in range(STREAMS_AT_MOST):
            hub().viewers.add(Viewer(viewer.pk))
        client = AsyncClient()
        await client.aforce_login(viewer)
        headers = {"accept": "application/json"}
        answer: Any = await client.get("/live/", {"topics": "system"}, headers=headers)
        hub().viewers.clear()
        return int(answer.status_code)

    assert asyncio.run(story()) == 200
