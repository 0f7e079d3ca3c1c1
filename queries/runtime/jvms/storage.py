"""A storage JVM: `python -m queries.runtime.jvms.storage DIRECTORY`, Hadoop's file systems alone.

It has the class path, the Hadoop configuration, the secrets and the isolation of its application's
driver, so whatever the driver can reach it can reach, and nothing else. Python resolves the
secrets, hands them to the JVM on its standard input, and waits for its end.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

from headgate_ground.files import replace_file
from queries.domain.protocol import LAST_SEQ, SPEC, STORAGE_SOCKET, TMP, DriverSpec
from queries.driver_folder import DriverFolder
from queries.jvm.compiled import SPARK_JARS, java
from queries.runtime.process import SECOND, ShimPipe, begin, end_jvm
from queries.secret_references import References

_HADOOP = "spark.hadoop."
#: 200 MB for a listing of half a million names; the classes of S3A take 100 MB beside it.
_OPTIONS = ("-Xmx200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def main(arguments: list[str]) -> int:
    """Serve until idle for long enough; return the JVM's exit code."""
    folder = DriverFolder.of(Path(arguments[0]))
    lock = begin(folder.own)
    if lock is None:
        return SECOND
    replace_file(folder.own / LAST_SEQ, "0")  # it sends no events, so none can be missing
    spec = DriverSpec.loads((folder.control / SPEC).read_text())
    references = References(env_allowlist=spec.env_allowlist, secrets_dir=spec.secrets_dir)
    references.take_from_environment()
    os.environ.update(references.resolve_all(spec.env))
    settings_line = json.dumps(_settings(references.resolve_all(spec.conf)))
    shim = ShimPipe()
    process = subprocess.Popen(
        [
            java(),
            *_OPTIONS,
            f"-Djava.io.tmpdir={folder.own / TMP}",
            *("-cp", ":".join([*spec.jars, f"{SPARK_JARS}/*", *_hadoop_conf_dir()])),
            "headgate.StorageServer",
            *(STORAGE_SOCKET, str(spec.storage_idle_s)),
        ],
        stdin=subprocess.PIPE,
        cwd=folder.own,
        pass_fds=(lock,),
        text=True,
    )
    shim.send_line(f"jvm {process.pid}")

    def leave(*_: object) -> NoReturn:
        process.kill()  # it holds nothing worth a clean stop
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, leave)
    assert process.stdin is not None
    process.stdin.write(settings_line + "\n")
    process.stdin.flush()
    code = process.wait()
    end_jvm(process, 1, shim)
    return code


def _settings(conf: dict[str, str]) -> dict[str, str]:
    """Return Hadoop's part of the application's configuration, as its driver would set it."""
    named = {
        key.removeprefix(_HADOOP): value for key, value in conf.items() if key.startswith(_HADOOP)
    }
    # A path without a scheme is local, as for drivers; a store that fails is soon given up.
    quick = {"fs.s3a.attempts.maximum": "3", "fs.s3a.retry.limit": "3"}
    return {**quick, **named, "fs.defaultFS": "file:///"}


def _hadoop_conf_dir() -> list[str]:
    folder = os.environ.get("HADOOP_CONF_DIR", "")
    return [folder] if folder else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
