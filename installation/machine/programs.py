"""Define the system's programs on one host, and run the supervisord that keeps them running.

Each program is restarted when it exits, with an increasing delay while it fails to start. Signals
go to the program only, never to a group: drivers run in their own sessions and outlive all
programs.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from controlplane.home import Home, read_line, write_private
from headgate_ground.files import read_tail
from headgate_server import places
from installation.machine import claims, program
from installation.spark_ui import on_demand

#: Runs one of Django's commands; it and the demo's programs start in `places.DATA`.
MANAGE = (sys.executable, "-m", "headgate_server", "manage")
_WRAPPER = Path(program.__file__)
#: Variables of the programs' environment that no other process gets.
SECRETS = ("SECRET_KEY", "REDIS_URL")
_LOG_BYTES = 10_000_000  # size at which a program's log is rotated; three are kept


@dataclass(frozen=True, slots=True)
class ServiceProgram:
    """One program: its command, its start order, and the time limit for its exit."""

    name: str
    command: tuple[str, ...]
    priority: int  # started in ascending order, stopped in descending order
    leave_s: int  # then SIGKILL
    #: An exit sooner than this is a failed start: the next attempt is delayed, longer each time.
    starts_s: int = 2
    umask: int = 0o077  # for programs that write data: whether others can read it


def feeders(kafka_servers: str = "") -> list[ServiceProgram]:
    """Return the programs that feed the demo; the Kafka feeder only if there is a broker."""
    script = places.DATA / "examples" / "flights" / "feeder.py"
    if not script.exists():
        return []
    programs = [ServiceProgram("feeder", (sys.executable, str(script)), 60, 5)]
    if kafka_servers:
        module = (sys.executable, "-m", "examples.flights.kafka_feeder", kafka_servers)
        programs.append(ServiceProgram("kafka-feeder", module, 60, 8))
        store = ("-m", "examples.flights.planes", str(settings.HEADGATE_HOME / "demo"))
        programs.append(ServiceProgram("planes", (sys.executable, *store), 60, 12))
    return programs


def all_programs(
    home: Home,
    redis_command: Sequence[str],
    feeders: Sequence[ServiceProgram] = (),
    *,
    spark_ui_port: int,
) -> list[ServiceProgram]:
    """Return the programs to run; they include Redis only if it is the embedded one."""
    programs = [
        ServiceProgram("ingester", (*MANAGE, "ingest_events"), 20, 15),
        # A worker that finds its host's name taken watches it for some seconds before it exits.
        ServiceProgram("worker", tuple(worker_command()), 30, 20, starts_s=30),
        ServiceProgram("web", _web(), 50, 8),
        ServiceProgram("spark-ui", _spark_ui(home, spark_ui_port), 50, 8),
        # Stopped before what it watches, and after the message it may be sending.
        ServiceProgram("watcher", (*MANAGE, "watch"), 70, 25),
    ]
    if redis_command:
        programs.append(ServiceProgram("valkey", tuple(redis_command), 10, 30))
    return sorted([*programs, *feeders], key=lambda one: one.priority)


def _web() -> tuple[str, ...]:
    flags = (
        "--timeout-graceful-shutdown 3 --no-access-log --log-level warning --lifespan off "
        "--no-proxy-headers "  # asgi.py trusts those of HEADGATE_TRUSTED_PROXIES
        "--no-server-header --ws none --http installation.web.connections:Bounded"
    )
    tls = ("--ssl-certfile", settings.TLS_CERT, "--ssl-keyfile", settings.TLS_KEY)
    return (
        *(sys.executable, "-m", "uvicorn", "installation.asgi:application"),
        *("--host", settings.BIND, "--port", str(settings.HEADGATE_PORT), *flags.split()),
        *(tls if settings.TLS_CERT else ()),
    )


def _spark_ui(home: Home, port: int) -> tuple[str, ...]:
    """Return the command that listens for the Spark UI server, and starts it when it is used."""
    python = sys.executable
    server = (python, "-m", "installation.spark_ui.server")
    return (
        *(python, "-I", "-S", str(Path(on_demand.__file__)), settings.BIND, str(port)),
        *_wrapped(home, "spark-ui-server", server),
    )


def _wrapped(home: Home, name: str, command: Sequence[str]) -> tuple[str, ...]:
    """Return the command of a process that ends with its parent, and whose identity is written."""
    identity = home.run / f"{name}.process"
    return (sys.executable, "-I", "-S", str(_WRAPPER), str(identity), *command)


def worker_command() -> list[str]:
    """Return the command line of a Celery worker with this installation's queues."""
    return [
        *(sys.executable, "-m", "celery", "--app", "controlplane", "worker"),
        *("--pool", "threads", "--concurrency", str(settings.WORKER_THREADS)),
        *("--queues", f"{settings.QUEUE},{settings.HOST_QUEUE}"),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]


def configuration(
    home: Home, programs: Sequence[ServiceProgram], *, controlled: bool = False
) -> str:
    """Return supervisord's configuration, without secrets, which are in the environment.

    With `controlled`, this account can start and stop the programs with `supervisorctl`.
    """
    blocks = [
        "[supervisord]\nnodaemon=true\nsilent=true\nloglevel=info\n"
        f"logfile={_escaped(home.logs / 'supervisord.log')}\n"
        f"logfile_maxbytes={_LOG_BYTES}\nlogfile_backups=2\n"
        f"pidfile={_escaped(home.run / 'supervisord.pid')}\n"
        f"directory={_escaped(places.DATA)}\n"
        + (f"user={os.getuid()}\n" if not os.getuid() else ""),
    ]
    if controlled:
        socket = _escaped(home.run / "supervisord.sock")
        blocks.append(
            f"[unix_http_server]\nfile={socket}\nchmod=0600\n"
            f"[supervisorctl]\nserverurl=unix://{socket}\n"
            "[rpcinterface:supervisor]\nsupervisor.rpcinterface_factory="
            "supervisor.rpcinterface:make_main_rpcinterface\n"
        )
    for service in programs:
        command = shlex.join(_wrapped(home, service.name, service.command))
        blocks.append(
            f"[program:{service.name}]\ncommand={_escaped(command)}\npriority={service.priority}\n"
            f"autostart=true\nautorestart=true\nstartsecs={service.starts_s}\nstartretries=1000000\n"
            f"umask={service.umask:03o}\nstopsignal=TERM\nstopwaitsecs={service.leave_s}\n"
            "stopasgroup=false\nkillasgroup=false\nredirect_stderr=true\n"
            f"stdout_logfile={_escaped(home.logs / f'{service.name}.log')}\n"
            f"stdout_logfile_maxbytes={_LOG_BYTES}\nstdout_logfile_backups=2\n"
        )
    return "\n".join(blocks)


def configure(home: Home, programs: Sequence[ServiceProgram]) -> None:
    """Write supervisord's configuration; unchanged, it needs no space on a full disk."""
    file, text = _configuration_file(home), configuration(home, programs)
    if read_line(file) != text.strip():
        write_private(file, text)


def start(home: Home, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start supervisord as configured, in a separate session that ends with this process."""
    with (home.logs / "supervisord.out").open("ab") as output:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "installation.machine.supervisor",
                "-c",
                str(_configuration_file(home)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=places.DATA,
            start_new_session=True,
            preexec_fn=program.die_with_parent,
        )
    claims.record(home, "supervisord", process.pid)
    return process


def _configuration_file(home: Home) -> Path:
    return home.run / "supervisord.conf"


def log_tail(home: Home, name: str, *, lines: int = 15) -> str:
    """Return the end of a program's log; "" if there is none."""
    return "\n".join(read_tail(home.logs / f"{name}.log", 20_000).splitlines()[-lines:])


def _escaped(text: object) -> str:
    """Return the text with `%` escaped for supervisord's configuration."""
    return str(text).replace("%", "%%")
