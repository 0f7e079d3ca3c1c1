"""What docs/alerts.md tells receivers and operators is what is sent and set up."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from queries.channels import chat
from queries.channels.base import Message
from queries.channels.kinds import KINDS
from queries.channels.webhook import SIGNATURE, TIMESTAMP, body_of, signature
from queries.domain.alerts.forms import IncidentKind

PAGE = (Path(__file__).parents[2] / "docs" / "alerts.md").read_text()
MESSAGE = Message(
    key="headgate/a/1",
    step="opened",
    severity="critical",
    kind="failed",
    title="flights: failed",
    text="division by zero",
    url="https://headgate.example.org/alerts/a/",
    at=datetime(2026, 1, 5, tzinfo=UTC),
    labels={"team": "data"},
    facts=(("Query", "flights"),),
)


def _block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found.group(1)


def _rows(heading: str) -> dict[str, list[str]]:
    """Return the table under a heading: first cell -> the others."""
    table = PAGE.split(f"{heading}\n", 1)[1].split("\n|", 1)[1].split("\n\n", 1)[0]
    lines = [line.strip("| ") for line in table.splitlines()[2:]]
    cells = [[cell.strip() for cell in re.split(r"\s*\|\s*", line)] for line in lines]
    return {first.strip("`"): rest for first, *rest in cells}


def test_every_kind_of_incident_is_on_the_page_with_its_words_and_severity() -> None:
    assert {kind: row[:2] for kind, row in _rows("## Incidents").items()} == {
        kind.value: [kind.label, kind.severity.value] for kind in IncidentKind
    }


def test_every_kind_of_channel_is_on_the_page_with_its_settings_and_secrets() -> None:
    rows = _rows("## Channels")
    assert set(rows) == {kind.value for kind in KINDS}
    for kind, needs in KINDS.items():
        row = " ".join(rows[kind.value])
        assert re.findall(r"`([a-z_]+)`\*", row) == list(needs.form.secret)
        named = [name for name in re.findall(r"`([a-z_]+)`", row) if name not in _VALUES]
        assert named == list(needs.form.names)


#: Values in the table of channels, not settings.
_VALUES = ("starttls", "tls")


def test_every_chat_service_is_on_the_page() -> None:
    told = PAGE.split("- **Chat**")[1].split("\n- ")[0]
    assert set(re.findall(r"`([a-z]+)`", told)) == chat.FIXED.keys() | chat.NAMED


def test_a_message_is_as_the_schema_on_the_page_says() -> None:
    import jsonschema  # four seconds that only one process has to take

    schema = json.loads(_block("json"))
    jsonschema.Draft202012Validator.check_schema(schema)
    body = json.loads(body_of(MESSAGE))
    jsonschema.validate(body, schema)
    assert set(body) == set(schema["properties"])


def _receiver() -> Any:
    names: dict[str, Any] = {}
    exec(compile(_block("python"), "docs/alerts.md", "exec"), names)
    return names


@pytest.mark.parametrize(
    ("secret", "age_s", "changed", "believed"),
    [
        (b"ours", 0, b"", True),
        (b"ours", 299, b"", True),
        (b"ours", 301, b"", False),
        (b"ours", -301, b"", False),
        (b"theirs", 0, b"", False),
        (b"ours", 0, b" ", False),
    ],
)
def test_a_receiver_as_on_the_page_believes_what_is_ours_and_nothing_else(
    secret: bytes,
    age_s: int,
    changed: bytes,
    believed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = _receiver()
    monkeypatch.setattr(names["time"], "time", lambda: 1_000_000.0)
    body, at = body_of(MESSAGE), str(1_000_000 - age_s)
    headers = {TIMESTAMP: at, SIGNATURE: signature("ours", at, body)}
    assert names["is_ours"](secret, headers, body + changed) is believed
