"""Run the whole system on one host; `make run` calls this."""

import errno
import os
import ssl
import subprocess
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser, OutputWrapper
from django.utils import timezone

from controlplane import environment, servers
from controlplane.home import StartProblem, read_line
from controlplane.hosts import HostName, NameTaken
from headgate_ground.files import use_forgiving_output
from headgate_server import places
from installation.keeper import STOP_LIMIT_S, Keeper, ignore_stops, interrupt_on_stop
from installation.machine import (
    claims,
    drivers,
    java,
    preparation,
    program,
    programs,
    trial_servers,
    valkey,
)
from queries.domain.system import SETUP
from queries.services.local_roots import make_ours
from queries.services.system import installation


class Command(BaseCommand):
    """Start web, worker, ingester, Redis and feeder; on Ctrl-C, stop all but the drivers."""

    help = "Run the whole system on this host until Ctrl-C. Drivers keep running."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the switch for `make`, which must not leave the system running when it ends."""
        parser.add_argument(
            "--with-parent",
            action="store_true",
            help="stop when the process that started this ends",
        )

    def handle(self, *args: Any, with_parent: bool, **options: Any) -> None:
        """Start everything, print the URL, wait, and stop everything."""
        use_forgiving_output()
        self.stdout, self.stderr = OutputWrapper(sys.stdout), OutputWrapper(sys.stderr)
        if with_parent:
            program.die_with_parent()
        interrupt_on_stop()
        run = _Startup(self)
        code = 0
        try:
            run.prepare()
            run.start()
            run.announce()
            run.keeper.exec()
        except KeyboardInterrupt:
            self.stdout.write("\nStopping…")
        except StartProblem as trouble:
            self.stderr.write(str(trouble))
            code = 1
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.stderr.write(f"The disk is full: {error}\n  Free up space, then start again.")
            code = 1
        finally:
            ignore_stops()
            run.keeper.stop()
        sys.exit(code)


class _Startup:
    """The beginning of one run, from the lock to the address; its keeper does the rest."""

    def __init__(self, command: Command) -> None:
        self._write = command.stdout.write
        self.home = settings.HOME
        scheme = "https" if settings.TLS_CERT else "http"
        self.address = f"{scheme}://127.0.0.1:{settings.HEADGATE_PORT}/"
        self.environment = dict(os.environ)
        self.redis: valkey.Redis | None = None
        self.spark_ui_port = settings.SPARK_UI_PORT
        self.demo: subprocess.Popen[str] | None = None  # its installation
        self.keeper = Keeper(self.home, self.environment, self.print_line)

    def print_line(self, line: str) -> None:
        """Print a line, with its commands spelled for this installation."""
        self._write(places.with_local_commands(line))

    def prepare(self) -> None:
        """Choose Java, Redis and the database, print them, and prepare them."""
        self.home.make()
        self.home.keep_host(settings.HEADGATE_HOST)
        self.keeper.claim = claims.claim(self.home, address=self.address)
        self.home.preparing.touch()
        self.home.ending.unlink(missing_ok=True)
        left = claims.own_processes(self.home)
        if left:
            self.print_line(
                f"Stopping processes left by an earlier run: {', '.join(p.name for p in left)}"
            )
            claims.end(left, limit_s=STOP_LIMIT_S)
        if why := installation.refusal():
            raise StartProblem(*why.split("\n", 1))
        self._check_certificate()
        self._check_ports()
        alive = len(drivers.living())
        chosen_java = self.keeper.java = java.choose(self.home.java)
        self.redis = valkey.choose(self.home, drivers_alive=alive)
        self.print_line(f"Java      {chosen_java.sentence()}")
        self.print_line(f"Redis     {self.redis.sentence}")
        self.print_line(f"Database  {preparation.database_sentence()}")
        for server in trial_servers.with_the_demo(self.home):
            if server.is_set_up():
                self.keeper.start_trial(server)
        self.print_line(f"Data      {self.home.root}")
        if alive:
            self.print_line(f"Drivers   {alive} still streaming; they are adopted")
            if lost := drivers.without_files():
                self.print_line(f"          without their directories: {', '.join(lost)}")
        for name in ("SECRET_KEY_FILE", "REDIS_URL_FILE"):
            self.environment.pop(name, None)  # the programs get their contents instead
        self.environment |= {
            "HEADGATE_HOME": str(self.home.root),
            "HEADGATE_SPARK_UI_PORT": str(self.spark_ui_port),
            "SECRET_KEY": environment.value_of("SECRET_KEY") or self.home.ensure_secret_key(),
            "REDIS_URL": self.redis.url,
            "JAVA_HOME": str(chosen_java.home),
            "PYTHONUNBUFFERED": "1",
            # glibc gives each of a worker's threads a heap of its own, and keeps what they freed.
            "MALLOC_ARENA_MAX": self.environment.get("MALLOC_ARENA_MAX", "2"),
        }
        make_ours()
        self.print_line("Preparing the database…")
        preparation.prepare_database(timezone.now())
        self._check_host()
        if preparation.collect_static_files():
            self.print_line("Collected the static files")
        if preparation.lacks_java_classes():
            self.print_line("Compiling Headgate's Java classes…")
            if trouble := preparation.compile_java_classes(chosen_java.home):
                self.print_line(trouble)

    def start(self) -> None:
        """Start the programs, and wait until they work together."""
        assert self.redis is not None
        servers = [
            program.servers
            for program in self.keeper.trials
            if isinstance(program, trial_servers.Broker)
        ]
        feeders = programs.feeders(*servers) if settings.DEMO else []
        wanted = programs.all_programs(
            self.home, self.redis.command, feeders, spark_ui_port=self.spark_ui_port
        )
        self.print_line(f"Starting {', '.join(program.name for program in wanted)}…")
        programs.configure(self.home, wanted)
        self.keeper.start_supervisor()
        if settings.DEMO:
            self.demo = self._begin_demo()
        self._wait_until_ready(but=SETUP)  # which `announce` handles

    def announce(self) -> None:
        """Wait for the demo, create the first admin if there is no user yet, and print the URL."""
        if self.demo is not None:
            self._finish_demo(self.demo)
        password = preparation.first_admin()
        self.home.preparing.unlink(missing_ok=True)
        try:
            self._wait_until_ready()
        finally:  # the password is shown now or never
            login = f"  login admin / {password} (shown once)" if password else ""
            self.print_line(f"\nHeadgate is at {self.address}{login}")
            if password:
                self.print_line("Change it: .venv/bin/python manage.py changepassword admin")
        self.print_line("Ctrl-C stops it; drivers keep streaming.")

    def _check_host(self) -> None:
        try:
            HostName().refuse_another()
        except NameTaken as taken:
            raise StartProblem(
                f"Another worker already acts for host {settings.HEADGATE_HOST} in this database.",
                "Give this host its own name with HEADGATE_HOST, or stop the other worker.",
            ) from taken

    def _check_certificate(self) -> None:
        """Raise `StartProblem` if HEADGATE_TLS_CERT and HEADGATE_TLS_KEY do not fit together."""
        if not settings.TLS_CERT:
            return
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
                settings.TLS_CERT, settings.TLS_KEY
            )
        except OSError as error:  # ssl.SSLError is one
            raise StartProblem(
                f"HEADGATE_TLS_CERT and HEADGATE_TLS_KEY cannot be used: {error}.",
                "Use PEM files for the certificate and its key that this user can read.",
            ) from error

    def _check_ports(self) -> None:
        port, second = settings.HEADGATE_PORT, settings.SPARK_UI_PORT
        self.spark_ui_port = second
        if not servers.port_is_free(second):
            free = (port_free for port_free in servers.free_ports() if port_free != port)
            self.spark_ui_port = next(free, second)
            self.print_line(
                f"Spark UI  port {second} is in use, so port {self.spark_ui_port} is used until "
                "the next start. Set HEADGATE_SPARK_UI_PORT to choose another one permanently"
            )
        if not servers.port_is_free(port):
            raise StartProblem(
                f"Port {port} is in use.",
                f"Choose another: `HEADGATE_PORT={port + 1} make run`, or stop the program "
                f"that uses it (`ss -ltnp 'sport = :{port}'` shows which).",
            )

    def _begin_demo(self) -> "subprocess.Popen[str]":
        """Install the demo while the programs start: the database is all that it needs."""
        command = [*programs.MANAGE, "install_demo"]
        for server in self.keeper.trials:
            command += [f"--{server.label.lower()}", server.place]
        process = subprocess.Popen(
            command,
            cwd=places.DATA,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=program.die_with_parent,
        )
        claims.record(self.home, "demo", process.pid)
        return process

    def _finish_demo(self, process: "subprocess.Popen[str]") -> None:
        """Wait until the demo is installed, and print the created objects, or the error."""
        try:
            made, errors = process.communicate(timeout=preparation.AT_MOST_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.print_line(
                f"The demo was not installed: it took longer than {preparation.AT_MOST_S} s"
            )
            return
        if process.returncode:
            lines = errors.strip().splitlines() or ["no reason given"]
            self.print_line(f"The demo was not installed: {lines[-1]}")
        elif made.strip():
            self.print_line(made.strip())

    def _wait_until_ready(self, *, but: str = "") -> None:
        preparation.wait_until_ready(self.home, self.address, check=self._check_supervisor, but=but)

    def _check_supervisor(self) -> None:
        """Raise `StartProblem` if the programs' supervisor has exited."""
        if ended := self.keeper.supervisor_end():
            raise StartProblem(
                f"The process supervisor has ended ({ended}).",
                read_line(self.home.logs / "supervisord.out")[-2000:],
            )
