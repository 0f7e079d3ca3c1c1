"""The trial Kubernetes cluster's control plane: etcd, API server, controllers and scheduler.

Only the API server and etcd listen: the one at an address of this host that pods can reach, the
other on loopback, for clients with a certificate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from installation.machine.kubernetes_keys import Keys
from installation.machine.programs import ServiceProgram

#: Seconds without a sign of life after which a node is not ready; Kubernetes' default is 50.
NODE_GRACE_S = 16
_LEAVE_S = 20


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """Where the programs are, what they use, and where they listen."""

    binaries: Path
    data: Path  # etcd's
    keys: Keys
    host: str  # the API server's address
    port: int  # the API server's; etcd has the next two

    def programs(self) -> list[ServiceProgram]:
        """Return the programs; each waits for those before it, or is started again."""
        wanted = {
            "etcd": (10, "etcd", self._etcd()),
            "apiserver": (20, "kube-apiserver", self._apiserver()),
            "controllers": (30, "kube-controller-manager", self._controllers()),
            "scheduler": (30, "kube-scheduler", self._client("scheduler")),
        }
        return [
            ServiceProgram(
                name,
                (
                    str(self.binaries / program),
                    *(f"--{option}={value}" for option, value in options.items()),
                ),
                priority,
                _LEAVE_S,
            )
            for name, (priority, program, options) in wanted.items()
        ]

    def _etcd(self) -> Mapping[str, object]:
        clients, peers = (f"https://127.0.0.1:{self.port + step}" for step in (1, 2))
        secured = {
            "cert-file": self.keys.certificate,
            "key-file": self.keys.key,
            "trusted-ca-file": self.keys.authority,
            "client-cert-auth": "true",
        }
        return {
            "data-dir": self.data,
            "unsafe-no-fsync": "true",  # a stop forgets everything anyway
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
            **secured,
            **{f"peer-{name}": value for name, value in secured.items()},
        }

    def _apiserver(self) -> Mapping[str, object]:
        keys = self.keys
        return {
            "etcd-servers": f"https://127.0.0.1:{self.port + 1}",
            "etcd-cafile": keys.authority,
            "etcd-certfile": keys.certificate,
            "etcd-keyfile": keys.key,
            "bind-address": self.host,
            "advertise-address": self.host,
            "secure-port": self.port,
            "tls-cert-file": keys.certificate,
            "tls-private-key-file": keys.key,
            "kubelet-client-certificate": keys.certificate,
            "kubelet-client-key": keys.key,
            "kubelet-preferred-address-types": "InternalIP",
            "service-cluster-ip-range": "10.96.0.0/24",
            "service-account-issuer": f"https://{self.host}:{self.port}",
            "service-account-signing-key-file": keys.key,
            "service-account-key-file": keys.key,
            "token-auth-file": keys.tokens,
            "anonymous-auth": "false",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
        }

    def _controllers(self) -> Mapping[str, object]:
        return {
            **self._client("controllers"),
            "root-ca-file": self.keys.authority,
            "service-account-private-key-file": self.keys.key,
            "use-service-account-credentials": "true",
            "node-monitor-period": "2s",
            "node-monitor-grace-period": f"{NODE_GRACE_S}s",
        }

    def _client(self, account: str) -> Mapping[str, object]:
        """Return the options of a program that only calls the API server."""
        kubeconfig = self.keys.folder / account
        return {"kubeconfig": kubeconfig, "leader-elect": "false", "secure-port": 0}
