"""Check places on this host: data roots, and the Spark UI server."""

import urllib.request
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError

from controlplane.ports import port_is_free
from controlplane.tls import own_certificate
from headgate_ground.identities import read_identity
from queries.domain.definitions.locations import local_path
from queries.domain.system import OF_DATA, Part, first_line, ok, problem
from queries.selectors.disks import low_disks

DATA_ROOTS = "data roots"
DATA_DISKS = "data disks"
SPARK_UI = "Spark UI"
_LOOK_LIMIT_S = 1.0
#: Time that the Spark UI server gets to start before it is asked whether it responds.
_STARTS_WITHIN_S = 30.0


def data_roots_part() -> Part:
    """Check whether this host's data roots exist."""
    from queries.selectors.secrets import all_given_roots
    from queries.services.local_roots import missing, root_location

    try:
        application_roots = [root for roots in all_given_roots().values() for root in roots]
        absent = missing(root_location(root) for root in (*settings.DATA_ROOTS, *application_roots))
    except DatabaseError as error:
        return problem(DATA_ROOTS, f"The data roots cannot be read: {first_line(error)}")
    if not absent:
        return ok(DATA_ROOTS, "All data roots exist on this host.")
    which = "is not a folder" if len(absent) == 1 else "are not folders"
    return problem(
        DATA_ROOTS,
        f"{', '.join(absent)} {which} on host {settings.HEADGATE_HOST}; reads and writes there "
        "fail. Create or mount it, then restart the applications that use it.",
    )


def data_disks() -> tuple[Part, ...]:
    """Check the free space of every local folder that queries may write to, on this host.

    One part for each file system with too little space, named after where it is mounted; () if
    there is none. The file system of HEADGATE_HOME is the part "disk".
    """
    from queries.selectors.secrets import all_given_roots
    from queries.services.local_roots import root_location

    try:
        application_roots = [root for roots in all_given_roots().values() for root in roots]
    except DatabaseError:  # the part "data roots" says so
        application_roots = []
    roots = (root_location(root) for root in (*settings.DATA_ROOTS, *application_roots))
    paths = [str(settings.CHECKPOINTS_DIR), *filter(None, map(local_path, roots))]
    return tuple(
        problem(f"{OF_DATA}{disk.mount}", f"{disk.sentence} Free up space there.")
        for disk in low_disks(paths)
    )


def spark_ui_part(*, now: datetime) -> tuple[Part, ...]:
    """Check the Spark UI server that `make run` has started; () if it is not ours.

    A request would start the server, so it is sent only if the server is running already.
    """
    if settings.HOME.holder() is None:
        return ()
    run, port = settings.HOME.run, settings.SPARK_UI_PORT
    listener = read_identity(run / "spark-ui.process")
    if listener is None or not listener.alive() or port_is_free(port):
        why = "nothing of ours listens there"
    else:
        why = _silence(port) if _is_running(run / "spark-ui-server.process", now) else ""
    if not why:
        return (ok(SPARK_UI, f"The Spark UI server is available on port {port}."),)
    return (
        problem(
            SPARK_UI,
            f"The Spark UI server is not responding on port {port}: {why}. Is the port in use? "
            "Set another one with HEADGATE_SPARK_UI_PORT.",
        ),
    )


def _is_running(identity: Path, now: datetime) -> bool:
    """Return whether the server runs, and has had the time to start."""
    server = read_identity(identity)
    if server is None or not server.alive():
        return False
    with suppress(FileNotFoundError):
        return now.timestamp() - identity.stat().st_mtime > _STARTS_WITHIN_S
    return False


def _silence(port: int) -> str:
    """Return why the running server does not respond as it should; "" if it does."""
    url = f"{'https' if settings.TLS_CERT else 'http'}://127.0.0.1:{port}/healthz"
    try:
        with urllib.request.urlopen(
            url, timeout=_LOOK_LIMIT_S, context=own_certificate(url)
        ) as answer:
            return "" if answer.read(20) == b"ok\n" else "another program responds there"
    except (OSError, ValueError) as error:
        return first_line(error)
