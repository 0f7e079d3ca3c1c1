"""The trial Kubernetes cluster's certificate authority, its one certificate, and its accounts.

The API server and etcd present the certificate, and the API server also uses it as a client, of
etcd and of the kubelets: all of them run as root on this host. Accounts have tokens. Everything is
made once, so a kubeconfig stays valid when the cluster is started again.
"""

import base64
import csv
import ipaddress
import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controlplane.home import write_private

#: Of executors that drivers outside the cluster create, and of drivers that are pods.
NAMESPACE, DRIVERS = "headgate", "headgate-drivers"
_WORKERS = "headgate-workers"  # of their account
#: Kubernetes' group of administrators.
_ADMINS = "system:masters"
#: Account -> its name and groups in Kubernetes; `connectors/kubernetes/accounts.yaml` has the roles
#: of `spark` and `worker`.
ACCOUNTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "admin": ("headgate-admin", _ADMINS),
        "controllers": ("system:kube-controller-manager", ""),
        "scheduler": ("system:kube-scheduler", ""),
        "node-1": ("system:node:node-1", "system:nodes"),
        "node-2": ("system:node:node-2", "system:nodes"),
        "spark": (
            f"system:serviceaccount:{NAMESPACE}:spark",
            f"system:serviceaccounts,system:serviceaccounts:{NAMESPACE}",
        ),
        "worker": (
            f"system:serviceaccount:{_WORKERS}:worker",
            f"system:serviceaccounts,system:serviceaccounts:{_WORKERS}",
        ),
    }
)
_VALID = timedelta(days=3650)
_CLOCKS_DIFFER = timedelta(days=1)


class Keys:
    """The files in a folder that only root can read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = folder / "ca.crt"
        self.certificate, self.key = folder / "cluster.crt", folder / "cluster.key"
        self.tokens = folder / "tokens.csv"  # in the format of `kube-apiserver --token-auth-file`

    def make(self, addresses: Iterable[str]) -> None:
        """Make everything, unless it exists; the certificate is valid for the addresses."""
        named = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address(one)) for one in addresses]
        )
        if self.tokens.exists() and self._names() == named and self._has_all():
            return  # the tokens are written last
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = datetime.now(UTC)
        authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        name = _name("headgate-trial-authority")
        authority = (
            _certificate(name, name, authority_key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(authority_key, hashes.SHA256())
        )
        certificate = (
            _certificate(_name("headgate-trial", _ADMINS), name, key.public_key(), now)
            .add_extension(named, critical=False)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .sign(authority_key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        write_private(self.authority, _pem(authority))
        write_private(self.certificate, _pem(certificate))
        write_private(self.key, private.decode())
        rows = [
            f'{secrets.token_hex(32)},{user},{account},"{groups}"'
            for account, (user, groups) in ACCOUNTS.items()
        ]
        write_private(self.tokens, "\n".join(rows))

    def _names(self) -> x509.SubjectAlternativeName:
        """Return the addresses for which the certificate is valid."""
        certificate = x509.load_pem_x509_certificate(self.certificate.read_bytes())
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value

    def _tokens(self) -> dict[str, str]:
        """Return the accounts' tokens."""
        with self.tokens.open(newline="") as opened:
            return {row[2]: row[0] for row in csv.reader(opened)}

    def _has_all(self) -> bool:
        """Return whether all accounts have tokens: an earlier release had fewer, or other names."""
        with self.tokens.open(newline="") as opened:
            users = {row[2]: row[1] for row in csv.reader(opened)}
        return users == {account: user for account, (user, _) in ACCOUNTS.items()}

    def write_kubeconfig(self, file: Path, account: str, server: str) -> None:
        """Write what a client needs to use an account: one file, with the authority in it."""
        tokens = self._tokens()
        namespace = DRIVERS if account == "worker" else NAMESPACE
        data = base64.b64encode(self.authority.read_bytes()).decode()
        configuration = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "headgate",
                    "cluster": {"server": server, "certificate-authority-data": data},
                }
            ],
            "users": [{"name": account, "user": {"token": tokens[account]}}],
            "contexts": [
                {
                    "name": "headgate",
                    "context": {"cluster": "headgate", "user": account, "namespace": namespace},
                }
            ],
            "current-context": "headgate",
        }
        write_private(file, yaml.safe_dump(configuration, sort_keys=False).strip())


def _name(common: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALID)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
