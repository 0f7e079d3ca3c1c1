"""Build a trial Kubernetes cluster's programs and images, and find what the host lacks for it.

`bootstrap/fetch.py` uses this module at a terminal, and the cluster itself
(`installation/machine/kubernetes.py`) uses its paths. It needs only the standard library. Go builds
the programs from its module proxy; the images are made of this host's Debian packages and of the
Python packages next to PySpark, so no image registry is needed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from headgate_server import container_images
from headgate_server.downloads import DownloadFailed, Follow, replaced

#: Kubernetes, by its Go module; 1.35 is the last that promises to work with containerd 1.x, which
#: Debian 12 has (source: Kubernetes' release notes of 1.35, "kubelet: containerd 1.x").
KUBERNETES = "1.35.4"
#: etcd, by its Go module. 3.4, as Debian has it, lacks RequestWatchProgress: each watch of Spark's
#: client then fails after two seconds.
ETCD = "3.6.5"
OLDEST_GO = "1.25"  # the `go` line in the go.mod of both
#: Staging modules that nothing requires and the module proxy does not have.
_NOT_PUBLISHED = frozenset({"k8s.io/sample-cli-plugin"})
#: The programs in the one that is built; it is called by their names.
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
#: Programs that run the cluster's pods, and their Debian packages.
_NEEDED = {"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2"}
#: Folder of the CNI plugins in Debian's package.
CNI = Path("/usr/lib/cni")
_CNI_PLUGINS = ("bridge", "host-local", "loopback")
_GO_LIMIT_S = 600  # for a `go` command that only reads or downloads a go.mod
_FLAGS = ("-trimpath", "-gcflags=all=-dwarf=false")  # without DWARF, compiling takes half the time


class Builder:
    """Builds into the cluster's folder, below HEADGATE_HOME."""

    def __init__(
        self, sources: Path, folder: Path, *, report: Callable[[str], None], follow: Follow
    ) -> None:
        """`sources` is `connectors/kubernetes`; `follow` is `bootstrap.run.follow`."""
        self._sources, self._folder = sources, folder
        self._report, self._follow = report, follow

    def build(self) -> None:
        """Build programs and images unless they are up to date; raise `DownloadFailed`."""
        check(missing_to_build())
        self._programs()
        container_images.build(
            self._sources / "entrypoint.py",
            pause=self._folder / "bin" / "pause",
            target=self._folder / "images",
            report=self._report,
        )

    def _programs(self) -> None:
        sources = sorted(self._sources.glob("*.go"))
        pins = f"{KUBERNETES} {ETCD} {_FLAGS} ".encode()
        target = self._folder / "bin"
        with replaced(target, pins + b"".join(one.read_bytes() for one in sources)) as folder:
            if folder is None:
                return
            self._report(
                f"Building Kubernetes {KUBERNETES} and etcd {ETCD} with Go: some 15 minutes and "
                "4 GB of Go's cache the first time…"
            )
            for source in sources:
                work = folder / f".{source.stem}"
                work.mkdir()
                shutil.copy(source, work / "main.go")
                (work / "go.mod").write_text(self._module(source.stem, work))
                self._go_build(work, folder / source.stem)
                shutil.rmtree(work)
            for name in PROGRAMS:
                (folder / name).symlink_to("kubernetes")
        self._report(f"  Kubernetes {KUBERNETES} and etcd {ETCD}, in {target}")

    def _module(self, name: str, work: Path) -> str:
        """Return a program's go.mod."""
        lines = [f"module headgate/{name}", f"go {OLDEST_GO}.0"]
        if name == "etcd":
            lines.append(f"require go.etcd.io/etcd/server/v3 v{ETCD}")
        if name == "kubernetes":
            lines.append(f"require k8s.io/kubernetes v{KUBERNETES}")
            staging = f"v0.{KUBERNETES.partition('.')[2]}"
            lines += [f"replace {one} => {one} {staging}" for one in self._staging(work)]
        return "".join(f"{line}\n" for line in lines)

    def _staging(self, work: Path) -> list[str]:
        """Return the modules that Kubernetes' go.mod replaces by folders of its repository."""
        done = _go("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}", folder=work)
        if done.returncode:
            raise _go_failed("download Kubernetes", done.stdout + done.stderr)
        module = Path(json.loads(done.stdout)["GoMod"]).read_text()
        found = re.findall(r"^\s*(k8s\.io/[\w.-]+) => \./staging/", module, re.MULTILINE)
        return sorted(set(found) - _NOT_PUBLISHED)

    def _go_build(self, work: Path, program: Path) -> None:
        stamps = "".join(
            f" -X {package}.gitVersion=v{KUBERNETES} -X {package}.gitMajor=1"
            f" -X {package}.gitMinor={KUBERNETES.split('.')[1]}"
            for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        )
        linking = f"-s -w{stamps if program.name == 'kubernetes' else ''}"
        code, output = self._follow(
            [
                *("go", "build", "-C", str(work), "-v", *_FLAGS, f"-ldflags={linking}"),
                *("-o", str(program), "."),
            ],
            r"^(?:go: downloading )?(\S+/\S+)",
            lambda count, found: f"{program.name}: step {count}, {found[1]}",
            every=300,
            env=_go_environment(),
        )
        if code:
            raise _go_failed(f"build {program.name}", "".join(output))


def _go_environment() -> dict[str, str]:
    """Return the environment of Go, whose compiler is faster with more garbage (GOGC)."""
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=mod",
        "GOGC": "400",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _go(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["go", *arguments],
        cwd=folder,
        env=_go_environment(),
        capture_output=True,
        text=True,
        timeout=_GO_LIMIT_S,
        check=False,
    )


def _go_failed(what: str, output: str) -> DownloadFailed:
    end = "\n".join(output.strip().splitlines()[-15:])
    return DownloadFailed(
        f"Go could not {what}:\n{end}",
        f"Check that `go version` prints {OLDEST_GO} or newer, that Go can reach its module proxy "
        "(set GOPROXY otherwise), and that 6 GB of disk are free. Then try again.",
    )


def check(missing: list[str]) -> None:
    """Raise `DownloadFailed` with the sentences about what is missing, if there are any."""
    if missing:
        raise DownloadFailed("\n".join(missing), "Then try again.")


def missing_to_build() -> list[str]:
    """Return a sentence, with the way to get it, for each thing that a build lacks here."""
    if sys.platform != "linux":
        return ["The trial Kubernetes cluster runs on Linux only."]
    missing = []
    if (version := _go_version()) is None or version < _numbers(OLDEST_GO):
        missing.append(
            f"Go {OLDEST_GO} or newer is missing: install it (https://go.dev/dl/) and add its "
            "`bin` folder to PATH."
        )
    if shutil.which("dpkg-query") is None:
        missing.append("dpkg is missing: the images are made of the packages of Debian or Ubuntu.")
        return missing
    python = "python{}.{}".format(*sys.version_info[:2])
    return missing + [
        f"Debian's {name} is missing: {why}. Install it with `sudo apt-get install {name}`."
        for name, why in (
            (python, "executors need the driver's version of Python"),
            (container_images.JAVA, "executors run on it"),
        )
        if not container_images.is_installed(name)
    ]


def missing_to_run() -> list[str]:
    """Return a sentence, with the way to get it, for each thing that a cluster lacks here."""
    if sys.platform != "linux":
        return ["The trial Kubernetes cluster runs on Linux only."]
    missing = []
    if os.geteuid() != 0:
        missing.append("The trial Kubernetes cluster needs root: it makes cgroups and bridges.")
    missing += [
        f"{program} is missing: install it with `sudo apt-get install {package}`."
        for program, package in _NEEDED.items()
        if shutil.which(program) is None
    ]
    if lacking := [name for name in _CNI_PLUGINS if not (CNI / name).exists()]:
        missing.append(
            f"The CNI plugins {', '.join(lacking)} are missing in {CNI}: install them with "
            "`sudo apt-get install containernetworking-plugins`."
        )
    return missing or _kernel_refusals()


def _kernel_refusals() -> list[str]:
    """Return what the kernel refuses to this account, although it is root, as in a container."""
    with tempfile.TemporaryDirectory() as folder:
        parts = {name: f"{folder}/{name}" for name in ("lower", "upper", "work", "merged")}
        for part in parts.values():
            os.mkdir(part)
        layers = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
        link = f"hgtry{os.getpid()}"  # at most 15 characters
        tries = {
            "make a pair of network interfaces": (
                ("ip", "link", "add", link, "type", "veth", "peer", "name", f"{link}p"),
                ("ip", "link", "delete", link),
            ),
            "mount an overlay": (
                ("mount", "-t", "overlay", "overlay", "-o", layers, parts["merged"]),
                ("umount", parts["merged"]),
            ),
        }
        return [
            f"The kernel does not allow this account to {what}: {error}. Run it on a host or in a "
            "virtual machine, instead of in a container."
            for what, (begin, undo) in tries.items()
            if (error := _error_of(begin)) or (error := _error_of(undo))
        ]


def _error_of(command: tuple[str, ...]) -> str:
    """Return what a command says if it fails; "" if it succeeds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr.strip() or f"code {done.returncode}") if done.returncode else ""


def _go_version() -> tuple[int, ...] | None:
    """Return the version of the Go on PATH; None without one."""
    if shutil.which("go") is None:
        return None
    done = _go("version", folder=Path.cwd())
    found = re.search(r"go version go(\d+(?:\.\d+)*)", done.stdout)
    return _numbers(found[1]) if found else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
