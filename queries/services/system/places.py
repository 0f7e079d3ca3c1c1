"""Check places on this host: data roots, and the Spark UI server."""

import urllib.request

from django.conf import settings
from django.db import DatabaseError

from controlplane.tls import own_certificate
from queries.domain.system import Part, first_line, ok, problem

DATA_ROOTS = "data roots"
SPARK_UI = "Spark UI"
_LOOK_LIMIT_S = 1.0


def data_roots_part() -> Part:
    """Check whether this host's data roots exist."""
    from queries.selectors.secrets import all_given_roots
    from queries.services.local_roots import missing, root_location

    try:
        given = [root for roots in all_given_roots().values() for root in roots]
        found = missing(root_location(root) for root in (*settings.DATA_ROOTS, *given))
    except DatabaseError as error:
        return problem(DATA_ROOTS, f"The data roots cannot be read: {first_line(error)}")
    if not found:
        return ok(DATA_ROOTS, "All data roots exist on this host.")
    which = "is not a folder" if len(found) == 1 else "are not folders"
    return problem(
        DATA_ROOTS,
        f"{', '.join(found)} {which} on host {settings.HEADGATE_HOST}; reads and writes there "
        "fail. Create or mount it, then restart the applications that use it.",
    )


def spark_ui_part() -> tuple[Part, ...]:
    """Check the Spark UI server that `make run` has started; () if it is not ours."""
    if settings.HOME.holder() is None:
        return ()
    port = settings.SPARK_UI_PORT
    url = f"{'https' if settings.TLS_CERT else 'http'}://127.0.0.1:{port}/healthz"
    try:
        with urllib.request.urlopen(
            url, timeout=_LOOK_LIMIT_S, context=own_certificate(url)
        ) as answer:
            if answer.read(20) == b"ok\n":
                return (ok(SPARK_UI, f"The Spark UI server responds on port {port}."),)
            why = "another program responds there"
    except (OSError, ValueError) as error:
        why = first_line(error)
    return (
        problem(
            SPARK_UI,
            f"The Spark UI server is not responding on port {port}: {why}. Is the port in use? "
            "Set another one with HEADGATE_SPARK_UI_PORT.",
        ),
    )
