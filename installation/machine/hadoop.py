"""Run HDFS and YARN for trials and tests: Hadoop's mini clusters in one JVM on loopback.

Not for production. The JVM is a daemon, and HDFS keeps its port and its files across restarts,
because checkpoints are named by it. YARN's ports change at each start: Spark reads them from `conf`
in the folder (HADOOP_CONF_DIR).
"""

from pathlib import Path

from controlplane.home import StartProblem
from installation.machine.daemon import Daemon

#: The JVM's heap with YARN, and with HDFS alone.
_HEAPS = ("1g", "256m")


class MiniHadoop(Daemon):
    """The clusters in a folder with their configuration, files, log, and process identity."""

    label, name, keeps = "Hadoop", "Hadoop cluster", "files"
    start_limit_s = 600  # 12 on two idle cores

    def __init__(
        self,
        folder: Path,
        *,
        port: int,
        program: Path | None = None,
        yarn_memory_mb: int = 4096,
    ) -> None:
        """`port` is HDFS's, and `yarn_memory_mb` the memory of YARN's one node; 0: HDFS alone.

        `program` is the folder with `jars` and `classes`; it defaults to the folder itself.
        """
        super().__init__(folder, "hadoop")
        self.program = program or folder
        self.conf = folder / "conf"  # HADOOP_CONF_DIR
        self._port, self._memory_mb = port, yarn_memory_mb

    @property
    def place(self) -> str:
        """Return HDFS's address, with which locations begin."""
        return f"hdfs://localhost:{self._port}"

    def sentence(self) -> str:
        """Return the clusters' description for users."""
        return f"HDFS at {self.place}{' and YARN' if self._memory_mb else ''}"

    # --- inside -----------------------------------------------------------------------

    def _ports(self) -> tuple[int, ...]:
        return (self._port,)

    def _prepare(self) -> list[str]:
        jars, classes = self.program / "jars", self.program / "classes"
        if not any(classes.glob("*.class")) or not any(jars.glob("*.jar")):
            raise StartProblem(
                f"There are no Hadoop jars and classes in {self.program}.",
                "Get them with `make hadoop`.",
            )
        self._check_ports()
        self._ready.unlink(missing_ok=True)
        return [
            *(self._java, f"-Xmx{_HEAPS[not self._memory_mb]}", "-XX:+UseSerialGC"),
            *("-cp", f"{classes}:{jars}/*", "MiniHadoop"),
            *(str(self.folder), str(self._port), str(self._memory_mb)),
        ]

    @property
    def _ready(self) -> Path:
        """Return the file that the JVM writes once everything responds."""
        return self.conf / "core-site.xml"

    def _responds(self) -> bool:
        return self._ready.exists()
