"""The two nodes of the trial Kubernetes cluster, and what they leave in the kernel.

Each node has a containerd and a kubelet of its own, a bridge in the host's network namespace, and a
cgroup. The host routes between the bridges, so its address on a bridge is reachable by every pod.
All processes of the pods are in the cgroup, so they are found even after a crash.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from controlplane.home import read_line, write_private
from headgate_ground.tolerant import whole
from headgate_server.container_images import PAUSE_IMAGE
from headgate_server.kubernetes import CNI

_CGROUPS = Path("/sys/fs/cgroup")
_SYSCTLS = Path("/proc/sys")
_INTERFACES = Path("/sys/class/net")
#: What a kubelet changes on the whole host (source: kubelet's `setupKernelTunables`).
_CHANGED = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)
#: What is true until the host is restarted: whose each network is, and what the kubelets changed.
_HELD = Path("/run/headgate-kubernetes")
#: The values before the first cluster on this host.
_BEFORE = _HELD / "sysctls"
#: Links to the logs of containers, which a kubelet makes outside its folder.
_LOG_LINKS = Path("/var/log/containers")
#: The CNI library's records of networks.
_CNI_RECORDS = Path("/var/lib/cni/results")
_LIMIT_S = 60  # for `ip` and `umount`
END_LIMIT_S = 30  # for killed processes to end, so that their cgroups can be removed
_LOOK_EVERY_S = 0.1  # there is no event for an empty cgroup

_CONTAINERD = """version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/{pause}"
disable_apparmor = true
# Without CAP_SYS_RESOURCE, runc cannot lower a score, and fails without a reason.
restrict_oom_score_adj = true
disable_hugetlb_controller = true
netns_mounts_under_state_dir = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni}"
conf_dir = "{folder}/cni"
"""


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its folder, its addresses and its cgroup."""

    folder: Path
    network: int  # the cluster's pods have addresses in 10.NETWORK.0.0/16
    number: int

    @property
    def name(self) -> str:
        """Return the node's name, which is also its label `kubernetes.io/hostname`."""
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        """Return the host's address on the node's bridge, which is the node's."""
        return f"10.{self.network}.{self.number}.1"

    @property
    def bridge(self) -> str:
        """Return the name of the bridge; names of interfaces have at most 15 characters."""
        return f"headgate{self.network}-{self.number}"

    @property
    def socket(self) -> Path:
        """Return containerd's socket."""
        return self.folder / "containerd.sock"

    @property
    def images(self) -> Path:
        """Return containerd's folder with images, which is kept."""
        return self.folder / "containerd"

    def containerd(self) -> tuple[str, ...]:
        """Return the command of containerd; it and its shims run in the cluster's cgroup."""
        enter = 'echo $$ > "$0" && exec "$@"'
        processes = str(_runtime_cgroup(self.network) / "cgroup.procs")
        configuration = str(self.folder / "containerd.toml")
        return ("sh", "-c", enter, processes, "containerd", "-c", configuration)

    def kubelet(self, program: Path) -> tuple[str, ...]:
        """Return the command of the kubelet."""
        folder = self.folder
        return (
            *(str(program), "--config", str(folder / "kubelet.yaml")),
            *("--kubeconfig", str(folder / "kubeconfig"), "--hostname-override", self.name),
            *("--node-ip", self.address, "--root-dir", str(folder / "kubelet")),
            *("--cert-dir", str(folder / "pki")),
        )

    def ctr(self, *arguments: str) -> tuple[str, ...]:
        """Return a command of containerd's client, in the namespace that kubelets use."""
        return ("ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments)

    def remove_images(self) -> None:
        """Remove all images; pods that run keep their files."""
        done = subprocess.run(
            self.ctr("images", "list", "--quiet"),
            check=True,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        if names := done.stdout.split():
            _run(*self.ctr("images", "remove", *names))

    def prepare(self, authority: Path) -> None:
        """Write the configuration, and make the bridge and the cgroup.

        `authority` signed the certificate with which the API server calls the kubelet.
        """
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = _CONTAINERD.format(
            root=self.images,
            state=self.folder / "runtime",
            socket=self.socket,
            pause=PAUSE_IMAGE,
            cni=CNI,
            folder=self.folder,
        )
        write_private(self.folder / "containerd.toml", text)
        network = json.dumps(self._network())
        write_private(self.folder / "cni" / "headgate.conflist", network)
        write_private(self.folder / "kubelet.yaml", yaml.safe_dump(self._kubelet(authority)))
        # Without an address of its own, a bridge has that of a port, which changes as pods come and
        # go: others would send to the former one until they ask again, up to a minute later.
        own = f"02:68:67:{self.network:02x}:{self.number:02x}:01"
        _run("ip", "link", "add", self.bridge, "address", own, "type", "bridge")
        _run("ip", "address", "add", f"{self.address}/24", "dev", self.bridge)
        _run("ip", "link", "set", self.bridge, "up")
        # Routing for this bridge alone: the host itself does not become a router.
        (_SYSCTLS / "net/ipv4/conf" / self.bridge / "forwarding").write_text("1")
        for hierarchy in _hierarchies():
            cgroup = hierarchy / f"headgate{self.network}" / self.name
            cgroup.mkdir(parents=True, exist_ok=True)

    def _network(self) -> dict[str, Any]:
        """Return the configuration of the pods' network."""
        subnet = f"10.{self.network}.{self.number}.0/24"
        addresses = {
            "type": "host-local",
            "dataDir": str(self.folder / "addresses"),
            "ranges": [[{"subnet": subnet, "gateway": self.address}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        # Not `isGateway`: that would make the host a router of all its interfaces.
        bridge = {"type": "bridge", "bridge": self.bridge, "hairpinMode": True, "ipam": addresses}
        return {"cniVersion": "0.4.0", "name": self.bridge, "plugins": [bridge]}

    def _kubelet(self, authority: Path) -> dict[str, object]:
        """Return the kubelet's configuration (source: kubelet-config.v1beta1)."""
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "healthzPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(authority)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupRoot": f"/headgate{self.network}/{self.name}",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,  # no Services, so no iptables are needed
            "podLogsDir": str(self.folder / "logs"),
            "volumePluginDir": str(self.folder / "plugins"),
            # Images cannot be pulled again, so none may be deleted.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1Gi"},
            "nodeStatusUpdateFrequency": "4s",
            "syncFrequency": "10s",
        }

    def clear(self) -> None:
        """Delete what the node keeps in its folder, apart from images."""
        for file in self.folder.glob("runtime/io.containerd.runtime.v2.task/*/*/address"):
            # Killed shims leave their sockets elsewhere, and pods the record of their loopback.
            Path(read_line(file).removeprefix("unix://")).unlink(missing_ok=True)
            loopback = _CNI_RECORDS / f"cni-loopback-{file.parent.name}-lo"
            loopback.unlink(missing_ok=True)
        for name in ("addresses", "kubelet", "logs", "runtime"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for record in _CNI_RECORDS.glob(f"{self.bridge}-*"):
            record.unlink(missing_ok=True)
        if (_INTERFACES / self.bridge).exists():
            _run("ip", "link", "delete", self.bridge)


def owner(network: int) -> Path | None:
    """Return the folder of the cluster that has a network; None if no cluster has it."""
    root = read_line(_HELD / str(network))
    return Path(root) if root else None


def owned(root: Path) -> list[int]:
    """Return the networks of a cluster: with another port, it has had another one."""
    held = (whole(file.name) for file in _HELD.glob("*"))
    return sorted(one for one in held if one is not None and owner(one) == root)


def claim(network: int, root: Path) -> bool:
    """Give a network to a cluster; return whether it has it, and no other one."""
    _HELD.mkdir(mode=0o700, exist_ok=True)
    with suppress(FileExistsError), (_HELD / str(network)).open("x") as file:
        file.write(f"{root}\n")
    return owner(network) == root


def release(network: int) -> None:
    """Free a cluster's network once nothing is left of the cluster."""
    if not is_left(network):
        (_HELD / str(network)).unlink(missing_ok=True)


def remember_sysctls() -> None:
    """Store what the kubelets change on this host, unless another cluster has stored it."""
    if not _BEFORE.exists():
        lines = [f"{name} {read_line(_SYSCTLS / name)}" for name in _CHANGED]
        write_private(_BEFORE, "\n".join(lines))


def restore_sysctls() -> None:
    """Undo what the kubelets have changed on this host, if this was its last cluster."""
    if any(_INTERFACES.glob("headgate*-*")):
        return
    for line in read_line(_BEFORE).splitlines():
        name, _, value = line.partition(" ")
        with suppress(OSError):  # some can only be read in a container
            (_SYSCTLS / name).write_text(value)
    _BEFORE.unlink(missing_ok=True)


def make_runtime_cgroup(network: int) -> None:
    """Make the cgroup of a cluster's containerds and shims."""
    _runtime_cgroup(network).mkdir(parents=True, exist_ok=True)


def processes(network: int) -> list[int]:
    """Return the pids of a cluster's containerds, shims and pods."""
    files = [file for cgroup in _cgroups(network) for file in cgroup.rglob("cgroup.procs")]
    texts = [read_line(file) for file in files]
    return sorted({int(pid) for text in texts for pid in text.split()})


def is_left(network: int) -> bool:
    """Return whether the kernel still has something of a cluster."""
    return bool(_cgroups(network)) or any(_INTERFACES.glob(f"headgate{network}-*"))


def end_pods(network: int, root: Path) -> None:
    """Kill a cluster's processes, and remove its cgroups and its mounts below `root`.

    What a process in an uninterruptible wait keeps is left after `END_LIMIT_S`.
    """
    deadline = time.monotonic() + END_LIMIT_S
    while _cgroups(network) and time.monotonic() < deadline:
        for pid in processes(network):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for cgroup in _cgroups(network):
            for folder, _, _ in os.walk(cgroup, topdown=False):
                with suppress(OSError):  # a process in it has not ended yet
                    os.rmdir(folder)
        time.sleep(_LOOK_EVERY_S)
    if mounts := _mounts(root):
        _run("umount", "--lazy", *mounts)
    if _LOG_LINKS.is_dir():
        for link in _LOG_LINKS.iterdir():
            if link.is_symlink() and link.readlink().is_relative_to(root):
                link.unlink()


def _mounts(root: Path) -> list[str]:
    """Return the mounts below a folder, the innermost first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in lines]
    return sorted((one for one in points if Path(one).is_relative_to(root)), reverse=True)


def _hierarchies() -> list[Path]:
    """Return the root of each cgroup hierarchy: one with cgroup v2, several with v1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    folders = [folder for folder in _CGROUPS.iterdir() if not folder.is_symlink()]
    return sorted(folder for folder in folders if (folder / "cgroup.procs").exists())


def _runtime_cgroup(network: int) -> Path:
    """Return the cgroup of a cluster's containerds and shims."""
    roots = _hierarchies()
    root = next((one for one in roots if one.name == "pids"), roots[0])
    return root / f"headgate{network}" / "runtime"


def _cgroups(network: int) -> list[Path]:
    """Return a cluster's cgroups, in each hierarchy that has one."""
    cgroups = [root / f"headgate{network}" for root in _hierarchies()]
    return [cgroup for cgroup in cgroups if cgroup.exists()]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_LIMIT_S)
