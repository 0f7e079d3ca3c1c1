"""A real driver whose Spark UI requires a signature."""

import re
import secrets
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from controlplane import jws
from controlplane.servers import free_ports
from headgate_ground.secret_kinds import NAMES, VALUES
from queries.domain.protocol import DriverStatus
from queries.jvm.compiled import our_jar
from tests import pieces
from tests.security.drivers.neighbours import code_of_users
from tests.spark.driver_under_test import LIMIT_S, DriverUnderTest

#: A path of each kind: pages, files, REST, metrics, and what is not there.
PATHS = (
    *("/", "/jobs/", "/environment/", "/executors/threadDump/?executorId=driver"),
    *("/StreamingQuery/", "/static/webui.js", "/api/v1/applications", "/api/v1/version"),
    *("/metrics/json/", "/metrics/prometheus/", "/metrics/executors/prometheus", "/nothing"),
)

#: A key of each row of the table of secrets, and one of each near miss.
NAMED = {f"spark.hadoop.{one.example}": "Zq9vT4" for one in NAMES}
HELD = {f"spark.hadoop.note{n}": re.sub("[‹›]", "", one.example) for n, one in enumerate(VALUES)}
SHOWN = {f"spark.hadoop.{one.near_miss}": "Zq9vT4" for one in NAMES} | {
    f"spark.hadoop.shown{n}": one.near_miss for n, one in enumerate(VALUES)
}
OF_THE_TABLE = NAMED | HELD | SHOWN


class Guarded:
    """A real driver, and the key of its Spark UI."""

    def __init__(self, home: Path, **changes: Any) -> None:
        self.key = secrets.token_bytes(32)
        self.port = next(free_ports())
        self.driver = DriverUnderTest(home)
        jars = {"jars": (str(our_jar(home / "classes", jars=pieces.spark_jars())),)}
        (copy,), sha256 = self.driver.launcher.freeze_code((str(code_of_users(home)),))
        self.driver.launch(
            code_roots=(copy,),
            code_sha256=sha256,
            listeners=("users_listening:Noting",),
            ui_port=self.port,
            ui_key=self.key.hex(),
            conf={**self.driver.spec.conf, **OF_THE_TABLE},
            **jars | changes,
        )
        self.status: DriverStatus = self.driver.ready()

    def ask(self, path: str, token: str | None = None) -> tuple[int, str]:
        """Return status and text of a path of its UI."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def token(self, key: bytes | None = None, *, age: timedelta = timedelta(0)) -> str:
        return jws.token(key or self.key, now=datetime.now(UTC) - age)

    def configuration(self) -> dict[str, str]:
        """Return Spark's configuration as its REST tells it."""
        place = f"/api/v1/applications/{self.status.application_id}/environment"
        said: dict[str, Any] = orjson.loads(self.ask(place, self.token())[1])
        return dict(said["sparkProperties"])
