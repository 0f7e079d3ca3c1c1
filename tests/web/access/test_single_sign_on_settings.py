"""The settings of single sign-on: what cannot be meant stops the start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
CLIENT = {
    "HEADGATE_OIDC_ISSUER": "https://id.example.org/realms/acme",
    "HEADGATE_OIDC_CLIENT_ID": "headgate",
    "HEADGATE_OIDC_CLIENT_SECRET": "a secret of the tests",
}


def _start(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from controlplane.settings import *; print(OIDC_CLIENT_SECRET)"],
        env=os.environ | CLIENT | variables,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"HEADGATE_OIDC_ISSUER": "http://id.example.org"}, "https://HOST/PATH"),
        ({"HEADGATE_OIDC_ISSUER": "id.example.org"}, "https://HOST/PATH"),
        ({"HEADGATE_OIDC_ISSUER": "https://id.example.org/?a=b"}, "https://HOST/PATH"),
        ({"HEADGATE_OIDC_CLIENT_ID": ""}, "HEADGATE_OIDC_CLIENT_ID"),
        ({"HEADGATE_OIDC_CLIENT_SECRET": ""}, "HEADGATE_OIDC_CLIENT_SECRET"),
        ({"HEADGATE_OIDC_CLIENT_SECRET_FILE": "/etc/hostname"}, "Set only one of them"),
        (
            {
                "HEADGATE_OIDC_CLIENT_SECRET": "",
                "HEADGATE_OIDC_CLIENT_SECRET_FILE": "/nowhere/at/all",
            },
            "It cannot be read",
        ),
        ({"HEADGATE_LOCAL_LOGIN": "nobody"}, "all, admins"),
    ],
)
def test_a_setting_that_cannot_be_meant_stops_the_start(
    variables: dict[str, str], said: str
) -> None:
    result = _start(**variables)
    assert result.returncode != 0
    assert said in result.stderr.strip().splitlines()[-1]
    assert CLIENT["HEADGATE_OIDC_CLIENT_SECRET"] not in result.stderr


def test_the_secret_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("from a file\n")
    result = _start(HEADGATE_OIDC_CLIENT_SECRET="", HEADGATE_OIDC_CLIENT_SECRET_FILE=str(file))
    assert result.stdout == "from a file\n", result.stderr


@pytest.mark.parametrize(
    "variables",
    [
        {"HEADGATE_OIDC_ISSUER": "http://127.0.0.1:9000"},
        {"HEADGATE_OIDC_ISSUER": "http://id.example.org", "HEADGATE_OIDC_ALLOW_HTTP": "1"},
    ],
)
def test_plain_http_is_for_this_machine_or_where_it_is_allowed(variables: dict[str, str]) -> None:
    assert _start(**variables).returncode == 0
