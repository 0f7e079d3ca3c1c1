"""Where each kind of channel goes, as a binding of its secrets allows it."""

from typing import Any

import pytest

from queries.channels.kinds import destination_of


@pytest.mark.parametrize(
    ("kind", "settings", "place"),
    [
        ("mail", {"host": "MX.example.org"}, "mx.example.org:587"),
        ("mail", {"host": "mx", "security": "tls"}, "mx:465"),
        ("mail", {"host": "::1", "port": "25"}, "[::1]:25"),
        ("mail", {"host": "env:RELAY"}, "*"),
        ("mail", {}, "*"),
        ("webhook", {"url": "https://Hooks.example.org/t0ken?x=1"}, "hooks.example.org:443"),
        ("webhook", {"url": "http://[::1]:8080/"}, "[::1]:8080"),
        ("webhook", {"url": "file:hook"}, "*"),
        ("webhook", {"url": "https://"}, "*"),
        ("webhook", {"url": "https://[broken"}, "*"),
        ("webhook", {}, "*"),
        ("pagerduty", {"routing_key": "file:key"}, "events.pagerduty.com:443"),
        ("pagerduty", {"url": "https://proxy/v2"}, "proxy:443"),
        ("opsgenie", {"url": "https://api.opsgenie.com"}, "*"),  # a kind that was removed
        ("chat", {"url": "slack://a/b/c"}, "slack"),
        ("chat", {"url": "tgram://123456789:abcdef/12315544/"}, "tgram"),
        ("chat", {"url": "workflows://prod.example.org:443/id/sig"}, "prod.example.org:443"),
        ("chat", {"url": "zulip://bot@team.zulipchat.com/token"}, "team.zulipchat.com"),
        ("chat", {"url": "ntfys://user:pass@ntfy.example.org/topic"}, "ntfy.example.org"),
        ("chat", {"url": "env:CHAT"}, "*"),
    ],
)
def test_the_place_of_a_channel(kind: str, settings: dict[str, Any], place: str) -> None:
    assert destination_of(kind, settings) == place
