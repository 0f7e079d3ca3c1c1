"""Make .venv match the locked requirements exactly, then run a command in it.

    python3 bootstrap/run.py [--dev | --as-it-is] ARGUMENTS OF PYTHON…

The script needs only the standard library, and prints what to do if something is missing. If the
stamp in .venv matches the locked requirements, nothing is installed and no network is needed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

REPOSITORY = Path(__file__).resolve().parent.parent
VENV = REPOSITORY / ".venv"
PYTHON = VENV / "bin" / "python"
OLDEST = (3, 11)
NEWEST_TRIED = 14
PIP = (
    *(str(PYTHON), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"),
    *("--progress-bar", "off"),
)
#: pip's settings and the variables with which uv gets them (uv: reference/environment).
_FOR_UV = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
    "default-timeout": "UV_HTTP_TIMEOUT",
}
#: Settings that change only what pip prints, or where it works.
_FOR_PIP_ALONE = frozenset(
    {
        *("break-system-packages", "cache-dir", "config-file", "disable-pip-version-check"),
        *(
            "no-cache-dir",
            "no-color",
            "no-input",
            "no-python-version-warning",
            "no-warn-script-location",
        ),
        *("progress-bar", "quiet", "require-virtualenv", "retries", "root-user-action", "verbose"),
    }
)
#: Time limit for pip or Maven; the largest package is Spark itself, about 450 MB.
INSTALL_LIMIT_S = 3600


def main(arguments: list[str]) -> None:
    """Prepare .venv and exec the command."""
    mode = arguments.pop(0) if arguments[:1] and arguments[0] in ("--dev", "--as-it-is") else ""
    if mode == "--as-it-is":
        if not PYTHON.exists():
            print_line("Headgate is not set up here yet: there is no .venv.")
            return
    else:
        use_python_new_enough(arguments, mode)
        make_venv()
        install("requirements.txt", *(["requirements-dev.txt"] if mode == "--dev" else []))
    os.chdir(REPOSITORY)
    if arguments:
        os.execv(str(PYTHON), [str(PYTHON), *arguments])


def print_line(line: str) -> None:
    """Print a line immediately."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fail(problem: str, way_out: str) -> None:
    """Print the problem and how to fix it, then exit."""
    sys.stderr.write(f"{problem}\n  {way_out}\n")
    sys.exit(1)


def use_python_new_enough(arguments: list[str], mode: str) -> None:
    """Continue with a newer Python on this host if the current one is too old."""
    if sys.version_info >= OLDEST:
        return
    for minor in range(NEWEST_TRIED, OLDEST[1] - 1, -1):
        executable = shutil.which(f"python3.{minor}")
        if executable:
            os.execv(executable, [executable, __file__, *([mode] if mode else []), *arguments])
    fail(
        f"Headgate needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}.",
        "Install one (Debian, Ubuntu: `sudo apt-get install python3.11 python3.11-venv`), or "
        "specify it: `make run PYTHON=/path/to/python3.11`.",
    )


def make_venv() -> None:
    """Create .venv, or replace it if its Python or its pip does not work."""
    if PYTHON.exists() and _answers(str(PYTHON), "-S", "-c", "") and any(VENV.glob("bin/pip*")):
        return
    if _answers(sys.executable, "-c", "import ensurepip, venv"):
        print_line(f"Creating .venv with Python {sys.version.split()[0]}…")
        result = _quietly(sys.executable, "-m", "venv", "--clear", str(VENV))
        if result.returncode == 0:
            return
        problem = (result.stdout.strip().splitlines() or ["no reason given"])[-1]
    else:
        problem = "its venv module is missing or incomplete"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    fail(
        f"{sys.executable} cannot create a virtual environment: {problem}.",
        f"Debian, Ubuntu: `sudo apt-get install python{version}-venv`; then try again.",
    )


def install(*names: str) -> None:
    """Install the locked package lists whose stamp does not match."""
    digests = {name: hashlib.sha256((REPOSITORY / name).read_bytes()).hexdigest() for name in names}
    wanted = [name for name, digest in digests.items() if _stamped(name) != digest]
    if not wanted:
        return
    text = "\n".join((REPOSITORY / name).read_text() for name in wanted)
    total = len(set(re.findall(r"^[\w.-]+(?===)", text, re.MULTILINE)))
    lists = " and ".join(wanted)
    print_line(
        f"Installing the {total} packages of {lists} into .venv; the first time takes a minute…"
    )
    files = [part for name in wanted for part in ("-r", str(REPOSITORY / name))]
    if not _install_with_uv(files, text):
        _install_with_pip(files, lists, total)
    for name in wanted:
        _stamp(name).write_text(digests[name] + "\n")


def _install_with_uv(files: list[str], text: str) -> bool:
    """Install with uv, which downloads and unpacks several packages at a time; False without it.

    pip installs uv first, from the same list. A setting of pip's that uv would not get, such as a
    constraint, leaves everything to pip; so does any failure, whose reason pip then prints.
    """
    block = re.search(r"^uv==.*?(?=^[\w#])", text, re.MULTILINE | re.DOTALL)
    settings = _settings_of_pip()
    if block is None or settings is None or os.environ.get("HEADGATE_INSTALLER") == "pip":
        return False
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as only:
        only.write(block[0])
        only.flush()
        if _quietly(*PIP, "-r", only.name).returncode:
            return False
    options = [
        "--compile-bytecode",
        # As pip does, take each file from any index that has it: its digest is in the list.
        *("--index-strategy", "unsafe-best-match"),
        # Spark's archive is built into a wheel only to be unpacked; compressing it takes 10 s.
        *("--config-settings-package", "pyspark:--build-option=--compression=stored"),
    ]
    code, _ = follow(
        [str(VENV / "bin/uv"), "pip", "install", *options, *files],
        r"^ *(?:Resolved|Prepared|Installed|Bytecode compiled) (\d+ \w+)(?: in .*)?$",
        lambda _, found: found[0].strip(),
        every=1,
        env={**os.environ, **settings, "VIRTUAL_ENV": str(VENV)},
    )
    return code == 0


def _settings_of_pip() -> dict[str, str] | None:
    """Return pip's configuration as uv's environment; None if a setting has no uv equivalent."""
    settings: dict[str, str] = {}
    for line in _quietly(str(PYTHON), "-m", "pip", "config", "list").stdout.splitlines():
        name, _, value = line.partition("=")
        name = name.rpartition(".")[2].replace("_", "-")
        if name in _FOR_UV:
            several = value.strip("'\"").replace("\\n", " ").split()
            settings[_FOR_UV[name]] = ("," if name == "find-links" else " ").join(several)
        elif name not in _FOR_PIP_ALONE:
            return None
    return settings


def _install_with_pip(files: list[str], lists: str, total: int) -> None:
    code, output = follow(
        [*PIP, *files],
        r"^\s*(?:Collecting|Requirement already satisfied:) ([\w.-]+)",
        lambda seen, found: f"{min(seen, total)}/{total} {found[1]}",
        steps={"Installing collected": "unpacking…", "Building wheels": "building…"},
    )
    if code:
        sys.stderr.write("".join(output[-15:]))
        fail(
            f"pip could not install {lists} (code {code}).",
            "Check the network and the free disk space. Then try again; packages that have been "
            "downloaded are not downloaded again.",
        )


def _stamp(name: str) -> Path:
    return VENV / f".{name}.installed"


def _stamped(name: str) -> str:
    return _stamp(name).read_text().strip() if _stamp(name).exists() else ""


def follow(
    command: list[str],
    pattern: str,
    text: Callable[[int, re.Match[str]], str],
    *,
    steps: Mapping[str, str] = MappingProxyType({}),
    every: int = 10,
    env: Mapping[str, str] | None = None,
) -> tuple[int, list[str]]:
    """Run a command; return its exit code and the last lines of its output.

    Matching lines are counted and shown as `text`: on a terminal, in a single updating line;
    elsewhere, only the first and every `every`th one. A line that starts with a key of `steps` is
    shown as that step.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=None if env is None else dict(env),
    )
    clear = f"\r{'':78}\r" if sys.stdout.isatty() else ""
    count = 0
    output: list[str] = []
    try:
        for line in process.stdout or ():
            output = [*output[-200:], line]
            if match := re.search(pattern, line):
                count += 1
                if clear:
                    sys.stdout.write(f"\r  {text(count, match):<76.76}")
                    sys.stdout.flush()
                elif count == 1 or count % every == 0:
                    print_line(f"  {text(count, match)}")
            for start, step in steps.items():
                if line.startswith(start):
                    print_line(f"{clear}  {step}")
        sys.stdout.write(clear)
        return process.wait(INSTALL_LIMIT_S), output
    except BaseException:
        process.kill()
        process.wait()
        raise


def _quietly(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=INSTALL_LIMIT_S,
        check=False,
    )


def _answers(*command: str) -> bool:
    try:
        return _quietly(*command).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
