"""Run an S3 gateway for trials and tests: versitygw on loopback, over a folder; not for production.

The gateway is a daemon, and keeps its port and its keys across restarts, because definitions
contain them. It honours `If-None-Match: *`, on which the fence of checkpoints relies.
"""

import http.client
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane.home import StartProblem
from installation.machine.daemon import Daemon

BUCKET = "headgate"
#: Files in the secrets folder: the access key and the secret key.
SECRETS = ("s3-access-key", "s3-secret-key")
USUAL_PORT = 7070  # versitygw's default
_HEALTH = "/health"  # hides a bucket of this name, which is not ours


@dataclass(frozen=True, slots=True)
class S3Address:
    """The gateway's port on 127.0.0.1, and its keys."""

    port: int
    access_key: str
    secret_key: str


class Gateway(Daemon):
    """A gateway in a folder with its program, keys, data, log, and process identity."""

    label, name, keeps = "S3", "S3 gateway", "objects"

    def __init__(
        self, folder: Path, *, program: Path | None = None, usual_port: int | None = USUAL_PORT
    ) -> None:
        """`program` defaults to `bin/versitygw` in the folder."""
        super().__init__(folder, "gateway")
        self.program = program or folder / "bin" / "versitygw"
        self.data = folder / "data"  # each folder in it is a bucket
        self._usual_port = usual_port  # None: any free one

    @property
    def place(self) -> str:
        """Return the endpoint: the value of `fs.s3a.endpoint`."""
        return f"http://127.0.0.1:{self.address().port}"

    def is_set_up(self) -> bool:
        """Return whether the gateway has been started before; if so, it runs with the system."""
        return self.program.exists() and self._address.exists()

    def address(self) -> S3Address:
        """Return the stored port and keys; the first call chooses them."""
        keys = {
            "access_key": f"headgate-{secrets.token_hex(6)}",
            "secret_key": secrets.token_urlsafe(30),
        }
        return self._stored_address(S3Address, ("port",), self._usual_port, **keys)

    def secrets(self) -> Mapping[str, str]:
        """Return the two keys."""
        address = self.address()
        return dict(zip(SECRETS, (address.access_key, address.secret_key), strict=True))

    def sentence(self) -> str:
        """Return the gateway's description for users."""
        return f"bucket {BUCKET} at {self.place}"

    # --- inside -----------------------------------------------------------------------

    def _ports(self) -> tuple[int, ...]:
        return (self.address().port,)

    def _prepare(self) -> list[str]:
        if not self.program.exists():
            raise StartProblem(
                f"There is no S3 gateway at {self.program}.", "Build it with `make s3`."
            )
        self._check_ports()
        (self.data / BUCKET).mkdir(mode=0o700, parents=True, exist_ok=True)
        return [
            *(str(self.program), "--quiet", "--port", f"127.0.0.1:{self.address().port}"),
            *("--health", _HEALTH, "posix", str(self.data)),
        ]

    def _environment(self) -> dict[str, str]:
        address = self.address()  # not on the command line, which all users can read
        keys = {"ROOT_ACCESS_KEY": address.access_key, "ROOT_SECRET_KEY": address.secret_key}
        return {**os.environ, **keys}

    def _responds(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.address().port, timeout=1)
        try:
            connection.request("GET", _HEALTH)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
