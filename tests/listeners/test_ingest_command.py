"""The ingester as a process: it stores, and leaves soon when asked to."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from tests.conftest_redis import ValkeyServer
from tests.listeners.events import STREAM, progress, send

pytestmark = [pytest.mark.redis, pytest.mark.faults]

REPOSITORY = Path(__file__).resolve().parents[2]
LIMIT_S = 60.0


def manage(home: Path, url: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "HEADGATE_HOME": str(home),
        "HEADGATE_EVENT_STREAM": STREAM,
        "SECRET_KEY": "one for every process of this installation",
        "REDIS_URL": url,
    }
    environment.pop("DATABASE_URL", None)
    return subprocess.Popen(
        [sys.executable, "manage.py", *arguments],
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("signals", [(signal.SIGTERM,), (signal.SIGKILL, signal.SIGTERM)])
def test_it_stores_what_comes_whatever_ends_it_and_leaves_on_sigterm(
    tmp_path: Path,
    valkey: ValkeyServer,
    redis_client: redis.Redis,
    signals: tuple[signal.Signals, ...],
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    migration = manage(home, valkey.url, "migrate", "--verbosity", "0")
    output, _ = migration.communicate(timeout=LIMIT_S)
    assert migration.returncode == 0, output
    told = manage(home, valkey.url, "shell", "-c", ROWS)
    output, _ = told.communicate(timeout=LIMIT_S)
    assert told.returncode == 0, output
    key = bytes.fromhex(output.split()[-1])
    sent = 0
    for number in signals:
        process = manage(home, valkey.url, "ingest_events")
        try:
            batch = [progress(seq, seq) for seq in range(sent + 1, sent + 501)]
            send(redis_client, *batch, key=key)
            sent += len(batch)
            _wait_until_read(redis_client)
        finally:
            process.send_signal(number)
            output, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == (0 if number == signal.SIGTERM else -number), output
    told = manage(home, valkey.url, "shell", "-c", COUNT)
    output, _ = told.communicate(timeout=LIMIT_S)
    assert output.split()[-2:] == [str(sent), str(sent)], output


ROWS = """
from model_bakery import baker

from controlplane.hosts import event_key
driver = baker.make("queries.Driver", pk=1, epoch=7)
baker.make("queries.Run", pk=5, driver=driver, query=baker.make("queries.Query", pk=42))
print(event_key(1, 7).hex())
"""
COUNT = """
from listeners.models import Progress
rows = Progress.objects
print(rows.count(), rows.values("seq").distinct().count())
"""


def _wait_until_read(client: redis.Redis) -> None:
    limit = time.monotonic() + LIMIT_S
    while time.monotonic() < limit:
        groups = client.xinfo_groups(STREAM) if client.exists(STREAM) else []
        last = client.xinfo_stream(STREAM)["last-generated-id"] if groups else None
        if groups and groups[0]["last-delivered-id"] == last and not groups[0]["pending"]:
            return
        time.sleep(0.05)
    raise AssertionError("the ingester did not read the stream in time")
