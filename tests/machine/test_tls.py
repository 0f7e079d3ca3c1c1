"""`make run` speaks TLS itself, with a certificate's path."""

import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from controlplane.servers import own_certificate
from tests.machine.test_up import LIMIT_S, REPOSITORY, System
from tests.spark.driver_under_test import wait_for


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Return a certificate for a host name, its key, and whom its readers trust."""
    issuer = trustme.CA()
    issued = issuer.issue_cert("headgate.example.org")
    cert, key, trusted = (tmp_path / name for name in ("cert.pem", "key.pem", "ca.pem"))
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    issuer.cert_pem.write_to_path(str(trusted))
    return cert, key, trusted


@pytest.fixture
def system(tmp_path: Path, files: tuple[Path, Path, Path]) -> Iterator[System]:
    system = System(tmp_path / "home")
    cert, key, _ = files
    system.environment |= {"HEADGATE_TLS_CERT": str(cert), "HEADGATE_TLS_KEY": str(key)}
    yield system
    system.end()


def _settings(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "import controlplane.settings"],
        env=os.environ | variables,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _opened(address: str, context: ssl.SSLContext) -> Any:
    """Return the answer; None while its server, which starts beside the pages', does not listen."""
    try:
        return urllib.request.urlopen(address, timeout=LIMIT_S, context=context)
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            return None
        raise


@pytest.mark.guarantee("G-TLS-1")
@pytest.mark.redis
@pytest.mark.faults
@pytest.mark.timeout(600)
def test_pages_and_spark_uis_are_served_over_tls(
    system: System, files: tuple[Path, Path, Path]
) -> None:
    said = system.start()
    address = f"https://127.0.0.1:{system.port}/"
    assert f"Headgate is at {address}" in said

    context = ssl.create_default_context(cafile=str(files[2]))
    context.check_hostname = False  # it is for headgate.example.org; we ask by number
    with urllib.request.urlopen(f"{address}login/", timeout=LIMIT_S, context=context) as page:
        headers = page.headers
    assert headers["Strict-Transport-Security"] == "max-age=31536000"
    cookies = headers.get_all("Set-Cookie")
    assert cookies
    assert all(re.search(r"; Secure(;|$)", cookie) for cookie in cookies)

    uis = f"https://127.0.0.1:{system.port + 1}/healthz"
    with wait_for(lambda: _opened(uis, context), "Spark UIs are served", LIMIT_S) as answer:
        assert answer.read() == b"ok\n"
    with pytest.raises((urllib.error.URLError, OSError)):
        urllib.request.urlopen(address.replace("https", "http"), timeout=LIMIT_S)


def test_a_certificate_that_cannot_be_used_is_told_before_anything_starts(
    system: System, files: tuple[Path, Path, Path]
) -> None:
    files[1].write_text("nothing")
    done = system.manage("up")
    assert done.returncode == 1
    assert "HEADGATE_TLS_CERT and HEADGATE_TLS_KEY cannot be used" in done.stderr
    assert "Starting" not in done.stdout


def test_a_certificate_without_its_key_stops_the_start() -> None:
    done = _settings(HEADGATE_TLS_CERT="/etc/cert.pem")
    assert done.returncode == 1
    assert "Set both HEADGATE_TLS_CERT and HEADGATE_TLS_KEY." in done.stderr


@pytest.mark.guarantee("G-TLS-2")
def test_nothing_listens_outside_of_this_machine_without_tls() -> None:
    done = _settings(HEADGATE_BIND="0.0.0.0")
    assert done.returncode == 1
    assert "Passwords would be readable in transit" in done.stderr
    tls = {"HEADGATE_TLS_CERT": "/etc/cert.pem", "HEADGATE_TLS_KEY": "/etc/key.pem"}
    assert _settings(HEADGATE_BIND="0.0.0.0", **tls).returncode == 0


def test_our_own_certificate_is_trusted_for_this_machine_alone(
    settings: Any, files: tuple[Path, Path, Path]
) -> None:
    settings.TLS_CERT = str(files[0])
    assert own_certificate("https://headgate.example.org/healthz") is None
    assert own_certificate("http://127.0.0.1:8000/") is None
    context = own_certificate("https://127.0.0.1:8000/")
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
