"""The `headgate-server` command: `make` and manage.py for both a checkout and a wheel.

It does not import the packages that it starts: the process it becomes imports them.
"""

import os
import sys
from pathlib import Path

from headgate_server import __version__, places

#: Django commands that need no `manage`, and what they do.
_SHORT = {
    "up": "run the whole system on this host until Ctrl-C; drivers keep streaming",
    "stop": "stop everything that runs from this data folder, including drivers",
    "cluster": "start a trial Spark standalone cluster on loopback",
}
#: Names of the connectors that can be downloaded.
_RECIPES = sorted(path.parent.name for path in places.DATA.glob("connectors/*/connector.toml"))
#: Versions of Spark that can be installed beside Headgate's own.
_SPARKS = sorted(path.stem for path in places.DATA.glob("connectors/sparks/*.txt"))
#: Arguments of `bootstrap/fetch.py`, which downloads connectors and trial servers, and the results.
_FETCH = {
    "kafka": (("kafka",), "download the Kafka connector and a trial broker, and start the broker"),
    "s3": (
        ("s3",),
        "build a trial S3 gateway with Go, download its connector, and start the gateway",
    ),
    "hadoop": (("hadoop",), "download HDFS and YARN for trials, and start both on loopback"),
    "kubernetes": (
        ("kubernetes",),
        "build Kubernetes with Go for trials, and start a cluster of two nodes (as root)",
    ),
    "spark": (("--sparks",), f"add, list or remove Spark versions: {', '.join(_SPARKS)}"),
    "connector": (("--connector",), f"add, list or remove connectors: {', '.join(_RECIPES)}"),
}


def main() -> None:
    """Run the command line."""
    command, *arguments = sys.argv[1:] or ["--help"]
    if command == "manage":
        manage(arguments)
    elif command in _SHORT:
        manage([command, *arguments])
    elif command in _FETCH:
        _become_fetch([*_FETCH[command][0], *arguments])
    elif command == "constraints":
        sys.stdout.write(places.LOCKED.read_text())
    elif command == "--version":
        sys.stdout.write(f"headgate-server {__version__}\n")
    elif command in ("-h", "--help"):
        sys.stdout.write(_usage())
    else:
        sys.stderr.write(f"There is no command {command!r}.\n\n{_usage()}")
        sys.exit(2)


def manage(arguments: list[str], *, name: str = "headgate-server manage") -> None:
    """Run one of Django's commands; `name` is the program name in its help."""
    os.umask(0o077)  # files of Headgate and its programs are private to its account
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    if str(places.DATA) not in sys.path:  # for `examples`: last on the path, in a wheel
        sys.path.append(str(places.DATA))
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    try:
        execute_from_command_line([name, *arguments])
    except ImproperlyConfigured as error:  # an invalid setting; the message names the variable
        sys.exit(str(error))


def _become_fetch(arguments: list[str]) -> None:
    """Exec the program that downloads; for a trial server, it then starts the server."""
    program = places.DATA / "bootstrap" / "fetch.py"
    home = Path(os.environ.get("HEADGATE_HOME") or places.HOME).resolve()
    os.environ["HEADGATE_HOME"] = str(home)
    os.chdir(places.DATA)
    os.execv(sys.executable, [sys.executable, str(program), *arguments])


def _usage() -> str:
    lines = [
        *_SHORT.items(),
        *((name, what) for name, (_, what) in _FETCH.items()),
        ("manage", "run a Django command, such as createtoken, changepassword, migrate or help"),
        ("constraints", "print the exact versions that this release was tested with"),
    ]
    shown = "".join(f"  {name:<12} {what}\n" for name, what in lines)
    return f"usage: headgate-server [--version] COMMAND …\n\n{shown}"


if __name__ == "__main__":
    main()
