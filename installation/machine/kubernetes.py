"""Run a Kubernetes cluster of two nodes on this host for trials.

It is real: etcd, the API server, the controllers, the scheduler, and on each node a kubelet with a
containerd, built and configured without a registry (`headgate_server.kubernetes`). They run under
their own supervisord (`supervised`), which restarts what is killed. There are no Services, because
nothing of ours uses one: pods reach each other, and the host, by address.

A stop ends all pods and forgets all objects. Keys, images and programs are kept.
"""

import shutil
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

from controlplane import environment
from controlplane.home import Home, StartProblem, read_line, write_private
from controlplane.servers import port_is_free
from headgate_server import kubernetes, places
from headgate_server.downloads import STAMP
from installation.machine import claims, forward, kubernetes_nodes
from installation.machine.kubernetes_control import ControlPlane
from installation.machine.kubernetes_keys import DRIVERS, NAMESPACE, Keys
from installation.machine.kubernetes_nodes import Node
from installation.machine.programs import ServiceProgram
from installation.machine.supervised import SupervisedCluster
from installation.machine.trial_servers import S3_USUAL_PORT, Gateway

#: With this port, pods have addresses in 10.244.0.0/16, as with most network plugins; other ports
#: choose other networks, so that two clusters on one host share nothing.
PORT, _NETWORKS = 16443, range(100, 256)
_NODES = (1, 2)
LOOPBACK, REDIS_PORT = ("127.0.0.1", "localhost", "::1"), 6379
#: Seconds without progress after which a start fails; a machine that is not busy needs 20.
READY_LIMIT_S = 300
_IMPORT_LIMIT_S = 600  # the image has 1.2 GB
_KUBECTL_LIMIT_S = 60
_LOOK_EVERY_S = 0.5  # a watch for two nodes would not be shorter
#: An address of a Unix socket has at most 107 characters; kubelets add names of their own.
_LONGEST_ROOT = 60


class Kubernetes(SupervisedCluster):
    """The cluster's files, addresses and nodes."""

    leave_s = 20

    def __init__(
        self,
        root: Path,
        port: int = PORT,
        *,
        built: Path | None = None,
        forwarded: tuple[int | Path, ...] = (),
    ) -> None:
        """`built` is the folder with `bin` and `images`; it defaults to the cluster's own.

        The API server has the port, and etcd the next two, on loopback. Pods reach the `forwarded`
        ports of loopback (`forward.command`) at the address `host`.
        """
        super().__init__(root)
        self.forwarded = forwarded
        self.port, self.built = port, built or root
        self.network = _NETWORKS[(port - PORT + 144) % len(_NETWORKS)]
        self.nodes = _nodes(root, self.network)
        self.host = self.nodes[0].address  # an address of this host that every pod can reach
        self.server = f"https://{self.host}:{port}"
        self.master = f"k8s://{self.server}"  # as applications name it
        # Of the account `spark`; isolated drivers see its folder.
        self.kubeconfig = root / "account" / "kubeconfig"
        #: Of the account with which workers create drivers' pods.
        self.worker_kubeconfig = root / "worker" / "kubeconfig"
        self.admin_kubeconfig = root / "admin.kubeconfig"
        self._keys = Keys(root / "keys")

    @classmethod
    def of(cls, home: Home) -> "Kubernetes":
        """Return the cluster of an installation; HEADGATE_KUBERNETES_PORT moves its port."""
        return cls(home.kubernetes, settings.KUBERNETES_PORT, forwarded=_places(home))

    def exists(self) -> bool:
        """Return whether the cluster is running, or has left something after a crash."""
        return bool(self.running() or kubernetes_nodes.owned(self.root))

    def start(self) -> bool:
        """Start the cluster if necessary, and wait until all of it is ready.

        Returns whether it was down. Raises `StartProblem` if something is missing, a port is taken,
        or there is no progress for `READY_LIMIT_S`.
        """
        self._check()
        started = not self._is_supervised()
        if not started and kubernetes_nodes.owner(self.network) != self.root:
            raise StartProblem(
                "The trial Kubernetes cluster is running with another HEADGATE_KUBERNETES_PORT.",
                "Use that one, or end the cluster with `make stop` first.",
            )
        if started:
            claims.end(self.running(), limit_s=self.leave_s)
            self._clear()
            self._claim()
            self._check_ports()
            self._prepare()
            self._spawn({}, controlled=True)
        self._import_images()
        self._wait_until_ready()
        return started

    def stop(self) -> bool:
        """Stop the cluster and all pods; return whether there was anything to end."""
        existed = self.exists()
        super().stop()
        if existed:
            self._clear()
        return existed

    def stop_kubelet(self, node: int) -> None:
        """Stop a node's kubelet, until it is started again; the node's pods keep running."""
        self._control("stop", f"kubelet-{node}", limit_s=_KUBECTL_LIMIT_S)

    def start_kubelet(self, node: int) -> None:
        """Start a kubelet that was stopped."""
        self._control("start", f"kubelet-{node}", limit_s=_KUBECTL_LIMIT_S)

    def stop_api(self) -> None:
        """Stop the API server, until it is started again; pods keep running."""
        self._control("stop", "apiserver", limit_s=_KUBECTL_LIMIT_S)

    def start_api(self) -> None:
        """Start the API server again."""
        self._control("start", "apiserver", limit_s=_KUBECTL_LIMIT_S)

    def ready_nodes(self) -> list[str]:
        """Return the names of the nodes that are ready; [] if the API server does not respond."""
        ready = '{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}'
        try:
            text = self.kubectl("get", "nodes", "-o", "jsonpath=" + ready + '{"\\n"}{end}')
        except subprocess.SubprocessError:
            return []
        rows = [line.split() for line in text.splitlines()]
        return [row[0] for row in rows if row[1:] == ["True"]]

    def kubectl(self, *arguments: str, stdin: str = "", limit_s: float = _KUBECTL_LIMIT_S) -> str:
        """Run kubectl as an administrator; return its output, or raise an error of `subprocess`."""
        return subprocess.run(
            [
                *(str(self.built / "bin" / "kubectl"), "--kubeconfig", str(self.admin_kubeconfig)),
                *arguments,
            ],
            check=True,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=limit_s,
        ).stdout

    # --- start --------------------------------------------------------------------------

    def _claim(self) -> None:
        """Take the network, also from a cluster whose folder was deleted while it was running."""
        holder = kubernetes_nodes.owner(self.network)
        if holder is not None and not holder.exists():
            self._clear_at(holder)
        if not kubernetes_nodes.claim(self.network, self.root):
            raise StartProblem(
                f"The trial cluster in {kubernetes_nodes.owner(self.network)} has the network "
                f"10.{self.network}.0.0/16.",
                "End it with `make stop` in its installation, or set HEADGATE_KUBERNETES_PORT to "
                "another port, which also chooses another network.",
            )

    def _check(self) -> None:
        if missing := kubernetes.missing_to_run():
            raise StartProblem("\n".join(missing), "Then try again.")
        if not (self.built / "bin" / "kubernetes").exists():
            raise StartProblem(
                f"There is no Kubernetes in {self.built}.", "Build it with `make kubernetes`."
            )
        if len(str(self.root)) > _LONGEST_ROOT:
            raise StartProblem(
                f"The path {self.root} is too long for the sockets of Kubernetes.",
                f"Set HEADGATE_HOME to a folder with which it has at most {_LONGEST_ROOT} "
                "characters.",
            )

    def _check_ports(self) -> None:
        for port in range(self.port, self.port + 3):
            if not port_is_free(port):
                kubernetes_nodes.release(self.network)
                raise StartProblem(
                    f"Port {port}, which the trial Kubernetes cluster needs, is in use.",
                    f"Stop the program that uses it (`ss -ltnp 'sport = :{port}'` shows which), "
                    "or set HEADGATE_KUBERNETES_PORT.",
                )

    def _prepare(self) -> None:
        """Write keys and configuration, and make what the nodes need in the kernel."""
        self.home.make()
        self._keys.make(["127.0.0.1", *(node.address for node in self.nodes)])
        files = {
            "spark": self.kubeconfig,
            "worker": self.worker_kubeconfig,
            "admin": self.admin_kubeconfig,
            **{name: self._keys.folder / name for name in ("controllers", "scheduler")},
            **{node.name: node.folder / "kubeconfig" for node in self.nodes},
        }
        for file in (self.kubeconfig, self.worker_kubeconfig):
            file.parent.mkdir(mode=0o700, exist_ok=True)
        for account, file in files.items():
            self._keys.write_kubeconfig(file, account, self.server)
        try:
            kubernetes_nodes.remember_sysctls()
            kubernetes_nodes.make_runtime_cgroup(self.network)
            for node in self.nodes:
                node.prepare(self._keys.authority)
        except (OSError, subprocess.CalledProcessError) as error:
            reason = getattr(error, "stderr", b"").decode(errors="replace").strip()
            self._clear()
            raise StartProblem(
                f"This host does not let root make bridges and cgroups: {error} {reason}".strip(),
                "Run the cluster on a machine or in a privileged container.",
            ) from error

    def _import_images(self) -> None:
        """Give each node's containerd the images, unless it has them; older ones are removed."""
        images = self.built / "images"
        version = read_line(images / STAMP)
        wanting = [node for node in self.nodes if read_line(node.folder / "imported") != version]
        self._run_all([node.ctr("version") for node in wanting])  # until containerd responds
        for node in wanting:
            node.remove_images()
        for file in (images / "pause.tar", images / "spark.tar"):
            self._run_all([node.ctr("images", "import", str(file)) for node in wanting])
        for node in wanting:
            write_private(node.folder / "imported", version)

    def _run_all(self, commands: list[tuple[str, ...]]) -> None:
        """Run commands at the same time, again and again until containerd responds to them."""
        deadline = time.monotonic() + _IMPORT_LIMIT_S
        while commands:
            running = [
                (one, subprocess.Popen(one, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
                for one in commands
            ]
            commands = []
            for command, process in running:
                try:
                    output, _ = process.communicate(timeout=deadline - time.monotonic())
                except subprocess.TimeoutExpired:
                    process.kill()
                    output, _ = process.communicate()
                if process.returncode:
                    commands.append(command)
            if commands and time.monotonic() > deadline:
                raise StartProblem(
                    f"{' '.join(commands[0])} failed: {output.decode(errors='replace').strip()}",
                    f"The logs are in {self.home.logs}.",
                )
            if commands:
                time.sleep(_LOOK_EVERY_S)

    def _wait_until_ready(self) -> None:
        """Wait for the nodes and the namespace; raise `StartProblem` without progress."""
        seen, since, applied = -1, time.monotonic(), False
        while True:
            ready = len(self.ready_nodes())
            applied = applied or self._apply()
            if ready == len(self.nodes) and applied and self._has_account():
                return
            if not self._is_supervised():
                raise StartProblem(
                    "The trial cluster's supervisor ended.", f"Its log is in {self.home.logs}."
                )
            if (progress := ready + applied) > seen:
                seen, since = progress, time.monotonic()
            if time.monotonic() - since > READY_LIMIT_S:
                raise StartProblem(
                    f"{ready} of {len(self.nodes)} Kubernetes nodes are ready at {self.server}.",
                    f"The logs are in {self.home.logs}; `{self._kubectl_shown()} describe nodes` "
                    "shows what the nodes report.",
                )
            time.sleep(_LOOK_EVERY_S)

    def _apply(self) -> bool:
        """Create the namespaces and the accounts; return whether that worked."""
        manifest = places.DATA / "connectors" / "kubernetes" / "accounts.yaml"
        try:
            self.kubectl("apply", "--filename", str(manifest))
        except subprocess.SubprocessError:
            return False
        return True

    def _has_account(self) -> bool:
        """Return whether pods can be made: Kubernetes makes their account with some delay."""
        try:
            for namespace in (NAMESPACE, DRIVERS):
                self.kubectl("get", "serviceaccount", "default", "--namespace", namespace)
        except subprocess.SubprocessError:
            return False
        return True

    def _kubectl_shown(self) -> str:
        return f"{self.built / 'bin' / 'kubectl'} --kubeconfig {self.admin_kubeconfig}"

    # --- end ----------------------------------------------------------------------------

    def _clear(self) -> None:
        """Remove what the cluster's processes have left, apart from keys, images and logs.

        This includes what it has left with another port.
        """
        self._clear_at(self.root)
        shutil.rmtree(self.root / "etcd", ignore_errors=True)
        kubernetes_nodes.restore_sysctls()

    def _clear_at(self, root: Path) -> None:
        """Remove what the nodes of the cluster in a folder have left, on all of its networks."""
        for network in kubernetes_nodes.owned(root):
            kubernetes_nodes.end_pods(network, root)
            for node in _nodes(root, network):
                node.clear()
            kubernetes_nodes.release(network)

    def _programs(self) -> list[ServiceProgram]:
        binaries = self.built / "bin"
        forwarding = forward.command(self.host, self.forwarded)
        control = ControlPlane(binaries, self.root / "etcd", self._keys, self.host, self.port)
        wanted = control.programs()
        if self.forwarded:
            wanted.append(ServiceProgram("forward", forwarding, 50, self.leave_s))
        for node in self.nodes:
            commands = {
                f"containerd-{node.number}": (10, node.containerd()),
                f"kubelet-{node.number}": (40, node.kubelet(binaries / "kubelet")),
            }
            for name, (priority, command) in commands.items():
                # Pods read files that these make.
                wanted.append(ServiceProgram(name, command, priority, self.leave_s, umask=0o022))
        return wanted


def _places(home: Home) -> tuple[int | Path, ...]:
    """Return the ports of what drivers' pods need and what listens on loopback only.

    These are the web process, the trial S3 gateway, and Redis, whether they run by now or not. The
    embedded one chooses its port when it is first started.
    """
    redis = urlsplit(settings.REDIS_URL)
    gateway = Gateway(home.s3)
    s3 = gateway.address().port if gateway.is_set_up() else S3_USUAL_PORT
    places: list[int | Path] = [settings.HEADGATE_PORT, s3]
    if environment.value_of("REDIS_URL"):
        places += [redis.port or REDIS_PORT] if redis.hostname in LOOPBACK else []
    else:
        places.append(home.redis_url)
    return tuple(places)


def _nodes(root: Path, network: int) -> list[Node]:
    return [Node(root / f"node-{number}", network, number) for number in _NODES]
