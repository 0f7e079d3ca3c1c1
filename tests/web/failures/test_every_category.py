"""The page of a failure states its cause, its place and what to click, whatever its category."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.domain.failures.categories import Category
from queries.domain.states import Policy
from queries.models.definitions import Query
from queries.models.history import Failure
from tests.scenarios.stage import BROKEN_PIPE, Stage


@pytest.mark.parametrize("category", Category)
def test_a_failures_page_states_cause_place_and_next_click(
    client: Client, admin: User, stage: Stage, category: Category
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.fail("delays", BROKEN_PIPE, batch=7)
    Failure.objects.update(category=category, policy=category.policy)
    fatal = category.policy is Policy.FATAL
    Query.objects.update(phase="FAILED" if fatal else "BACKOFF")
    client.force_login(admin)
    page = unescape(client.get(f"/failures/{Failure.objects.get().pk}/").content.decode())
    assert "Connection refused" in page
    assert 'href="/queries/delays/"' in page
    assert ", batch 7" in page
    for heading in ("What it means", "What to do", "What happens next"):
        assert re.search(rf"<dt>{heading}</dt><dd>\s*\S", page), heading
    buttons = re.findall(r'<a class="(btn[^"]*)" href="[^"]+"[^>]*>([^<]+)…</a>', page)
    assert buttons
    hopeless = {"Start now", "Stop the query"}
    if fatal:
        assert {words for style, words in buttons if "primary" in style}.isdisjoint(hopeless)
        assert buttons[0][1] != "Start now"
