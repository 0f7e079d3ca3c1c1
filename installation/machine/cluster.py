"""Run a Spark standalone cluster on loopback for trials: a master and two workers.

The cluster's three processes run under their own supervisord (`supervised`). A killed worker is
restarted.
"""

import importlib.util
import json
import sys
import time
import urllib.request
from pathlib import Path

from django.conf import settings

from controlplane.home import Home, StartProblem
from installation.machine import claims, java, programs
from installation.machine.supervised import SupervisedCluster

HOST = "127.0.0.1"
#: 7077 and 8080 are Spark's own ports. 8080 is often taken, and 18080 belongs to Spark's history
#: server.
MASTER_PORT = 7077
UI_PORT = 8070
WORKERS = 2
WORKER_CORES = 1
WORKER_MEMORY = "1536m"  # an executor of 1 GB plus overhead
READY_LIMIT_S = 300  # a machine that is not busy needs 10
LEAVE_S = 20
_LOOK_EVERY_S = 0.3  # over HTTP: there is no event to wait for


class Cluster(SupervisedCluster):
    """The cluster's files and addresses."""

    leave_s = LEAVE_S

    def __init__(self, root: Path, port: int = MASTER_PORT, ui_port: int = UI_PORT) -> None:
        super().__init__(root)
        self.port, self.ui_port = port, ui_port
        self.master = f"spark://{HOST}:{port}"  # the master's URL, as applications name it
        self.ui = f"http://{HOST}:{ui_port}/"  # the master's own page

    @classmethod
    def of(cls, home: Home) -> "Cluster":
        """Return the cluster of an installation; HEADGATE_CLUSTER_PORT moves its master."""
        port = settings.CLUSTER_PORT
        return cls(home.root / "cluster", port, UI_PORT + port - MASTER_PORT)

    def start(self) -> None:
        """Start the cluster if necessary, and wait until every worker has registered.

        Raises `StartProblem` if a port is taken, a process does not start or no Java is found.
        """
        if not self._is_supervised():
            claims.end(self.running(), limit_s=LEAVE_S)
            self._spawn(
                {
                    "JAVA_HOME": str(java.choose(self.home.java).home),
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_NO_DAEMONIZE": "1",
                    # Executors use the driver's Python, named with each task; these are for Spark
                    # itself.
                    "PYSPARK_PYTHON": sys.executable,
                }
            )
        deadline = time.monotonic() + READY_LIMIT_S
        while (worker_count := self.workers()) != WORKERS:
            if time.monotonic() > deadline:
                raise StartProblem(
                    f"{worker_count or 'No'} of {WORKERS} workers have registered "
                    f"at {self.master}.",
                    f"The logs are in {self.home.logs}; is a port in use "
                    f"(`ss -ltnp 'sport = :{self.port}'`)?",
                )
            time.sleep(_LOOK_EVERY_S)

    def workers(self) -> int:
        """Return the number of live workers according to the master; 0 if it is not responding."""
        try:
            with urllib.request.urlopen(f"{self.ui}json/", timeout=5) as answer:
                state = json.load(answer)
        except (OSError, ValueError):
            return 0
        return sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def _programs(self) -> list[programs.ServiceProgram]:
        spark_class = _spark_home() / "bin" / "spark-class"
        deploy = "org.apache.spark.deploy"
        master = (
            *(str(spark_class), f"{deploy}.master.Master", "--host", HOST),
            *("--port", str(self.port), "--webui-port", str(self.ui_port)),
        )
        cluster_programs = [programs.ServiceProgram("master", master, 10, LEAVE_S)]
        for number in range(1, WORKERS + 1):
            folder = self.root / f"worker-{number}"
            folder.mkdir(mode=0o700, exist_ok=True)
            worker = (
                *(str(spark_class), f"{deploy}.worker.Worker", "--host", HOST),
                *("--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY),
                *("--work-dir", str(folder), "--webui-port", "0", self.master),
            )
            # Its executors write queries' data.
            umask = settings.DATA_UMASK
            cluster_programs.append(
                programs.ServiceProgram(f"worker-{number}", worker, 20, LEAVE_S, umask=umask)
            )
        return cluster_programs


def _spark_home() -> Path:
    """Return the folder of the Spark in the pyspark package."""
    package = importlib.util.find_spec("pyspark")
    assert package is not None, "pyspark is a requirement"
    assert package.origin is not None
    return Path(package.origin).parent
