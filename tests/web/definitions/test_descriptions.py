"""What a query and an application are for: said in the form, kept, shown on the page."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from queries.views.definitions.query_bundle import of_body
from tests.scenarios.stage import Stage

WORDS = "Start it and look at its failures."


@pytest.mark.parametrize("path", ["/queries/delays/", "/applications/delays/"])
def test_a_description_stands_on_the_page(
    stage: Stage, client: Client, viewer: User, path: str
) -> None:
    stage.application("delays", description=WORDS)
    stage.query("delays", "delays", description=WORDS)
    client.force_login(viewer)
    assert WORDS in client.get(path).content.decode()


def test_editing_a_query_keeps_its_description() -> None:
    body = {"spec": {"kind": "sql", "sql": "SELECT 1", "description": WORDS}}
    assert of_body(body).main["description"].value() == WORDS
