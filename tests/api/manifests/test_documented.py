"""Each manifest on the pages of definitions and states is accepted by an apply as it is written."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from rest_framework.test import APIClient

pytestmark = pytest.mark.django_db
PAGES = ("definitions", "states-and-restarts")
BLOCKS = [
    (page, at, block)
    for page in PAGES
    for at, block in enumerate(
        re.findall(
            r"^```yaml\n(apiVersion: .*?)^```",
            (Path(settings.BASE_DIR) / "docs" / f"{page}.md").read_text(),
            re.M | re.S,
        )
    )
]


def test_both_pages_have_manifests() -> None:
    assert {page for page, _, _ in BLOCKS} == {*PAGES}
    assert len(BLOCKS) > 5


@pytest.mark.parametrize(
    ("name", "at", "block"), BLOCKS, ids=[f"{page}-{at}" for page, at, _ in BLOCKS]
)
def test_a_manifest_of_a_page_is_accepted(
    name: str, at: int, block: str, as_author: APIClient, tmp_path: Path
) -> None:
    body = {
        "owner": "docs",
        "values": {"data": str(tmp_path)},
        "manifests": [{"path": f"{name}.yaml", "text": block}],
        "dry_run": True,
    }
    answer = as_author.post("/api/v1/apply/", body, format="json")
    assert answer.status_code == 200, answer.json()
    assert {one["outcome"] for one in answer.json()["objects"]} == {"created"}
