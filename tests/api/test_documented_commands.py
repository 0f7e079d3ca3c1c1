"""The commands of docs/api.md do what the page says."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.urls import Resolver404, resolve
from django.utils import timezone

from queries.api.errors import TABLE
from queries.models.definitions import Query
from queries.models.history import Operation
from queries.services.access.tokens import create_token

PAGE = (Path(settings.BASE_DIR) / "docs" / "api.md").read_text()
COMMANDS = re.findall(r"^```sh run\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's commands use curl")
def test_the_commands_work_one_after_the_other(
    live_server: Any, author: User, tmp_path: Path
) -> None:
    _, text = create_token(user=author, name="docs", actor="tests", now=timezone.now())
    script = "\n".join(COMMANDS).replace("wait=60", "wait=1")  # nobody supervises here
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HEADGATE": live_server.url, "TOKEN": text},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    query = Query.objects.get(name="ticks")
    assert [row.verb for row in Operation.objects.order_by("pk")] == ["start", "stop"]
    intervals = [row.spec["trigger"]["interval"] for row in query.revisions.order_by("number")]
    assert intervals == ["5 seconds", "30 seconds", "1 minute"]


def test_the_page_names_every_status_of_the_table() -> None:
    named = {
        int(code) for row in re.findall(r"^\| ([\d, ]+) \|", PAGE, re.M) for code in row.split(",")
    }
    assert {code for code, _ in TABLE.values()} <= named


@pytest.mark.parametrize("address", sorted(set(re.findall(r"\$HEADGATE(/api/[^\"?\s]+)", PAGE))))
def test_every_address_on_the_page_is_there(address: str) -> None:
    try:
        found = resolve(address)
    except Resolver404:
        pytest.fail(f"{address} is nowhere")
    assert found.url_name != "nothing"
