"""The whole system beside a real cluster: its drivers are pods, their checkpoints are on S3."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from controlplane.servers import free_ports
from examples.flights import s3_definitions
from headgate_server.container_images import IMAGE
from installation.machine import forward
from installation.machine.kubernetes import Kubernetes
from installation.machine.kubernetes_keys import DRIVERS
from queries.domain.checkpoints.ownership import owners_folder
from queries.domain.definitions.kubernetes import DRIVER_ACCOUNT
from tests import pieces
from tests.faults.system import System
from tests.storage.stores import S3Store

APPLICATION, QUERY = "numbers", "windows"
ROWS, WINDOW = 10, 5  # rows of each batch, and batches of each window


class PodSystem(System):
    """An installation without the demo whose application `numbers` runs as a pod."""

    application = APPLICATION

    def __init__(self, home: Path, cluster: Kubernetes, store: S3Store, **environment: str) -> None:
        web = next(free_ports())
        super().__init__(
            home,
            web,
            HEADGATE_DEMO="0",
            HEADGATE_POD_KUBECONFIG=str(cluster.worker_kubeconfig),
            HEADGATE_POD_URL=f"http://{cluster.host}:{web}",
            HEADGATE_POD_REDIS_URL=f"redis://{cluster.host}",
            HEADGATE_POD_IMAGE=IMAGE,
            **environment,
        )
        self.cluster, self.store = cluster, store
        self._prefix = home.parent.name  # in the store, which other systems use too
        s3_port = urlsplit(store.endpoint).port
        #: The store as pods and this host both reach it.
        self.endpoint = f"http://{cluster.host}:{s3_port}"
        self.forwarder: subprocess.Popen[bytes] | None = None
        self._ports = (web, s3_port or 0)

    def up(self) -> None:
        """Start it, with the connector and the bucket's keys, and make its ports reachable."""
        connectors, secrets = self.home / "connectors", self.home / "secrets"
        connectors.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (connectors / "s3").symlink_to(pieces.s3_connector())
        secrets.mkdir(mode=0o700, exist_ok=True)
        keys = (self.store.access_key, self.store.secret_key)
        for name, key in zip(("s3-access-key", "s3-secret-key"), keys, strict=True):
            (secrets / name).write_text(key)
        super().up()
        self.token = self.manage("createtoken", "admin", "--scope", "admin").strip()
        redis = urlsplit((self.home / "redis_url").read_text().strip()).port or 0
        self.forwarder = subprocess.Popen(
            forward.command(self.cluster.host, (*self._ports, redis)), cwd=self.folder
        )

    def close(self) -> None:
        """End everything, also the pods."""
        try:
            super().close()
        finally:
            if self.forwarder is not None:
                self.forwarder.kill()
                self.forwarder.wait()

    def define(self, *, executors: int = 0) -> None:
        """Create the application and its query, with a deterministic source.

        With executors, they are pods too; otherwise the driver does all the work.
        """
        for key in s3_definitions.KEYS:
            host = self.endpoint.partition("://")[2]
            body = {"secret": key, "hosts": [host], "holder_kind": "application"}
            self.create("secret-bindings/", {**body, "holder": APPLICATION})
        self.create("allowed-paths/", {"application": APPLICATION, "path": s3_definitions.BUCKET})
        spec = {"connectors": ["s3"], "memory": "600m", **self._place("pod", executors)}
        self.create("applications/", {"name": APPLICATION, "spec": spec})
        self.create(
            "queries/",
            {
                "name": QUERY,
                "application": APPLICATION,
                "checkpoint": f"{s3_definitions.BUCKET}/{self._prefix}/checkpoints/{QUERY}",
                "spec": {
                    "kind": "sql",
                    "sources": [
                        {
                            "name": "numbers",
                            "format": "rate-micro-batch",
                            "options": {
                                "rowsPerBatch": str(ROWS),
                                "numPartitions": "1",
                                "startTimestamp": "0",
                                "advanceMillisPerBatch": "1000",
                            },
                            "watermark": {"column": "timestamp", "delay": "1 second"},
                        }
                    ],
                    "sql": "SELECT unix_timestamp(window.start) AS at, count(*) AS n, "
                    "sum(value) AS total FROM numbers "
                    f"GROUP BY window(timestamp, '{WINDOW} seconds')",
                    "sink": {
                        "format": "json",
                        "options": {"path": f"{s3_definitions.BUCKET}/{self._prefix}/out/{QUERY}"},
                    },
                    "trigger": {"kind": "processing_time", "interval": "1 second"},
                },
            },
        )

    def create(self, path: str, body: dict[str, Any]) -> None:
        """Create something over REST."""
        status, answer = self.call("POST", path, body)
        assert status == 201, (path, answer)

    def place(self, driver: str, *, executors: int = 0) -> None:
        """Make the driver a "pod" or a "process" from its next start on."""
        status, answer = self.call(
            "PATCH", f"applications/{APPLICATION}/", {"spec": self._place(driver, executors)}
        )
        assert status == 200, answer

    def _place(self, driver: str, executors: int) -> dict[str, Any]:
        conf = s3_definitions.store(self.endpoint, *s3_definitions.KEYS)
        conf["spark.sql.shuffle.partitions"] = "2"
        if executors:
            conf |= {
                DRIVER_ACCOUNT: "driver",
                "spark.executor.instances": str(executors),
                "spark.executor.memory": "512m",
                "spark.kubernetes.executor.request.cores": "100m",
            }
        master = self.cluster.master if executors else "local[2]"
        return {"driver": driver, "master": master, "conf": conf}

    def text(self, path: str) -> str:
        """Return the text of an address of REST."""
        request = urllib.request.Request(
            f"{self.base}/api/v1/{path}", headers={"Authorization": f"Token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=70) as answer:
            return str(answer.read().decode())

    # --- what is seen -----------------------------------------------------------------

    def committed(self) -> int:
        """Return the last batch in the checkpoint's commit log, -1 without any."""
        folder = self.store.folder / self._prefix / "checkpoints" / QUERY / "commits"
        numbers = [int(path.name) for path in folder.glob("*") if path.name.isdecimal()]
        return max(numbers, default=-1)

    def past(self, batch: int) -> int:
        """Wait until a batch after this one is committed; return its number."""
        found: int = self.wait(
            f"a batch after {batch}", lambda: (new := self.committed()) > batch and new
        )
        return found

    def owners(self) -> list[dict[str, Any]]:
        """Return the owner objects of the checkpoint, oldest first."""
        place = f"{s3_definitions.BUCKET}/{self._prefix}/checkpoints/{QUERY}"
        relative = owners_folder(place).removeprefix(f"{s3_definitions.BUCKET}/")
        files = sorted((self.store.folder / relative).glob("*.json"))
        return [json.loads(path.read_text()) for path in files]

    def check_rows(self) -> int:
        """Assert that the sink has each window once, as a batch computation would have it.

        The state of a window spans several batches. Returns the number of windows.
        """
        out = self.store.folder / self._prefix / "out" / QUERY
        logs = [path for path in (out / "_spark_metadata").glob("*") if path.name[0].isdigit()]
        names = {
            json.loads(line)["path"].rpartition("/")[2]
            for path in logs
            for line in path.read_text().splitlines()[1:]
        }
        found = [
            json.loads(line) for name in names for line in (out / name).read_text().splitlines()
        ]
        found.sort(key=lambda row: int(row["at"]))
        rows = WINDOW * ROWS
        expected = [
            {"at": at * WINDOW, "n": rows, "total": sum(range(at * rows, (at + 1) * rows))}
            for at in range(len(found))
        ]
        assert found == expected, "windows are missing, doubled or wrong"
        return len(found)

    def pods(self, labels: str = "headgate/kind=driver") -> list[dict[str, Any]]:
        """Return the pods of drivers, or those with other labels."""
        listed = self.cluster.kubectl(
            *("get", "pods", "--namespace", DRIVERS, "--selector", labels, "--output", "json")
        )
        return list(json.loads(listed)["items"])

    def executors(self) -> list[dict[str, Any]]:
        """Return the running pods of executors."""
        pods = self.pods("spark-role=executor")
        return [one for one in pods if one["status"].get("phase") == "Running"]

    def name(self) -> str:
        """Return the name of the running pod."""
        return str(self.pod()["metadata"]["name"])

    def pod(self) -> dict[str, Any]:
        """Return the running pod, once there is one."""

        def look() -> Any:
            running = [one for one in self.pods() if one["status"].get("phase") == "Running"]
            living = [one for one in running if "deletionTimestamp" not in one["metadata"]]
            return living[0] if living else None

        found: dict[str, Any] = self.wait("a running pod", look)
        return found


@contextmanager
def streaming(
    folder: Path, cluster: Kubernetes, store: S3Store, *, executors: int = 0
) -> Iterator[PodSystem]:
    """Yield a system whose query has been started."""
    system = PodSystem(folder / "home", cluster, store)
    try:
        system.up()
        system.define(executors=executors)
        system.verb(QUERY, "start")
        yield system
    finally:
        system.close()
