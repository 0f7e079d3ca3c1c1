"""A real Prometheus reads the metrics; rules and dashboard name what is there."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from queries.domain.metrics import METRICS
from queries.services.access.tokens import create_token
from tests import pieces
from tests.scenarios.stage import DIVIDE, Stage

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "observability"
LIMIT_S = 180  # generous: machines that run tests are small and shared


def _rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((EXAMPLES / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _panels() -> Iterator[str]:
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$query", ".*")


EXPRESSIONS = [rule["expr"] for rule in _rules()] + list(_panels())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_rules_and_panels_name_metrics_and_labels_that_there_are(expression: str) -> None:
    known = {one.name: one for one in METRICS}
    used = re.findall(r"(headgate_\w+)(?:\{([^}]*)\})?", expression)
    for name, matchers in used:
        assert name in known
        for label in re.findall(r"(\w+)\s*(?:=|!)", matchers):
            assert label in known[name].labels
    assert used or "up{" in expression


@pytest.mark.prometheus
def test_the_rules_are_sound_and_pass_their_own_tests() -> None:
    for command in (("check", "rules", "alerts.yml"), ("test", "rules", "alerts_test.yml")):
        ran = subprocess.run(
            [pieces.promtool(), *command],
            cwd=EXAMPLES,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "SUCCESS" in ran.stdout


@pytest.mark.prometheus
@pytest.mark.django_db(transaction=True)
def test_prometheus_scrapes_with_a_token_and_fires_the_alert_of_a_failed_query(
    live_server: LiveServer, viewer: User, tmp_path: Path, stage: Stage
) -> None:
    stage.query("delays")
    stage.up("delays")
    stage.query("broken")
    stage.up("broken")
    for _ in range(3):
        stage.fail("broken", DIVIDE, batch=7)
        if stage.phase("broken") == "BACKOFF":
            stage.pause("broken")
            stage.ready("broken")
    assert stage.phase("broken") == "ON_HOLD"
    _, token = create_token(user=viewer, name="prometheus", actor="ada", now=timezone.now())
    with _prometheus(live_server.url, str(token), tmp_path) as prometheus:
        assert _value(prometheus, 'headgate_query_phase{query="delays",phase="RUNNING"}') == 1
        assert _value(prometheus, 'headgate_query_phase{query="broken",phase="ON_HOLD"}') == 1
        assert _value(prometheus, 'headgate_part_up{part="database"}') == 1
        for expression in EXPRESSIONS:
            assert _ask(prometheus, "query", query=expression)["resultType"] == "vector"
        fired = _until(lambda: _alerts(prometheus).get("QueryNotRunning"))
        assert fired["labels"]["query"] == "broken"
        assert "broken is ON_HOLD" in fired["annotations"]["summary"]


@contextmanager
def _prometheus(target: str, token: str, folder: Path) -> Iterator[str]:
    """Run a Prometheus by our example, which scrapes `target` every 3 s; yield its address."""
    config = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "3s", "evaluation_interval": "1s"}
    (scrape,) = config["scrape_configs"]
    scrape["scrape_timeout"] = "3s"
    scrape["static_configs"][0]["targets"] = [target.removeprefix("http://")]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    (folder / scrape["authorization"]["credentials_file"]).write_text(token)
    rules = (EXAMPLES / "alerts.yml").read_text()
    (folder / "alerts.yml").write_text(rules.replace("for: 1m", "for: 1s"))
    port = pieces.free_port()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [pieces.prometheus(), f"--config.file={folder / 'prometheus.yml'}"]
            + [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _until(lambda: _scraped(address))
        yield address
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def _scraped(address: str) -> bool:
    """Tell whether a scrape has succeeded; a scrape that failed is the test's end."""
    (target,) = _ask(address, "targets")["activeTargets"] or [{"health": "unknown"}]
    return bool(target["health"] == "up" and _value(address, "count(headgate_query_info)") == 2)


def _value(address: str, expression: str) -> float | None:
    found = _ask(address, "query", query=expression)["result"]
    return float(found[0]["value"][1]) if found else None


def _alerts(address: str) -> dict[str, Any]:
    found = _ask(address, "alerts")["alerts"]
    return {one["labels"]["alertname"]: one for one in found if one["state"] == "firing"}


def _ask(address: str, what: str, **asked: str) -> Any:
    with urlopen(f"{address}/api/v1/{what}?{urlencode(asked)}", timeout=10) as answer:
        return json.load(answer)["data"]


def _until(attempt: Any) -> Any:
    """Return what is found before the limit; a server that does not listen yet is asked again."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            if found := attempt():
                return found
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError("Prometheus has not seen it in time")
