"""Run HDFS and YARN for trials and tests: Hadoop's mini clusters in one JVM on loopback.

Not for production. The JVM is a daemon, and HDFS keeps its port and its files across restarts,
because checkpoints are named by it. YARN's ports change at each start: Spark reads them from `conf`
in the folder (HADOOP_CONF_DIR).
"""

from pathlib import Path

from controlplane.home import Trouble
from installation.machine.daemon import START_LIMIT_S, Daemon

USUAL_PORT = 8020  # Hadoop's default for a name node
#: The JVM's heap with YARN, and with HDFS alone.
_HEAPS = ("1g", "256m")


class MiniHadoop(Daemon):
    """The clusters in a folder with their configuration, files, log, and process identity."""

    name = "Hadoop cluster"

    def __init__(
        self,
        folder: Path,
        *,
        port: int = USUAL_PORT,
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
        self._java = "java"  # `start` names another

    @property
    def place(self) -> str:
        """Return HDFS's address, with which locations begin."""
        return f"hdfs://localhost:{self._port}"

    def start(self, java_home: Path, *, limit_s: float = START_LIMIT_S) -> bool:
        """Start the JVM if necessary, and wait until HDFS and YARN respond.

        Return whether it was down. Raises `Trouble` if its jars or classes are missing, HDFS's port
        is taken, or they do not respond within the time limit.
        """
        self._java = str(java_home / "bin" / "java")
        return self._bring_up(limit_s)

    def sentence(self) -> str:
        """Return the clusters' description for users."""
        return f"HDFS at {self.place}{' and YARN' if self._memory_mb else ''}"

    # --- inside -----------------------------------------------------------------------

    def _ports(self) -> tuple[int, ...]:
        return (self._port,)

    def _prepare(self) -> list[str]:
        jars, classes = self.program / "jars", self.program / "classes"
        if not any(classes.glob("*.class")) or not any(jars.glob("*.jar")):
            raise Trouble(
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
