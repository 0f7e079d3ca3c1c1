"""The image holds what its services and drivers import, and docs name only what it holds."""

import json
import re
import subprocess
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from django.conf import settings
from django.core.management import get_commands

REPOSITORY = Path(settings.BASE_DIR)
DOCKERFILE = (REPOSITORY / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
#: What is laid over the worker, for walls of its drivers.
ISOLATION: dict[str, dict[str, Any]] = yaml.safe_load(
    (REPOSITORY / "docker-isolation.yml").read_text()
)["services"]
#: The last stage: what is in the image.
IMAGE = DOCKERFILE.rpartition("\nFROM ")[2]
DOCS = REPOSITORY / "docs"


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module that makes the stand-ins, found as the scripts beside it find it."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "bootstrap"))
    return import_module("stand_ins")


def _copied(stage: str) -> dict[str, str]:
    """Return what a stage copies from the repository -> where to."""
    found: dict[str, str] = {}
    for line in re.findall(r"^COPY (?!--from)(.*)$", stage, re.M):
        *sources, target = line.split()
        found |= dict.fromkeys(sources, target)
    return found


def _section(page: str, title: str) -> str:
    """Return a section of a page, on one line."""
    text = (DOCS / page).read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return " ".join(text.split())


def _isolation_section() -> str:
    return _section("isolation.md", "In containers")


def _let_through() -> set[str]:
    """Return the names at the top that the build is given."""
    rules = (REPOSITORY / ".dockerignore").read_text().split()
    assert rules[0] == "*", "everything is left out that is not named"
    return {rule[1:].partition("/")[0] for rule in rules if rule.startswith("!")}


def test_every_package_of_the_product_is_in_the_image() -> None:
    contracts = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]
    # `cli/` is a distribution of its own, for the machines of those who use it.
    ours = {name for name in contracts["root_packages"] if not name.startswith("cli.")}
    packages = {*ours, *(root.name for root in settings.CODE_ROOTS)}
    assert "headgate_async" in packages
    assert packages <= set(_copied(IMAGE))


def test_what_is_copied_is_there_and_is_given_to_the_build() -> None:
    copied = set(_copied(DOCKERFILE))
    assert copied
    assert {source for source in copied if not (REPOSITORY / source).exists()} == set()
    assert {Path(source).parts[0] for source in copied} == _let_through()


@pytest.mark.parametrize("name", [".env", ".git", ".venv", "var"])
def test_what_is_secret_or_of_this_machine_reaches_no_image(name: str) -> None:
    assert name not in _let_through()


def test_git_does_not_take_the_file_of_passwords() -> None:
    asked = subprocess.run(
        ["git", "check-ignore", "--quiet", ".env"], cwd=REPOSITORY, timeout=60, check=False
    )
    assert asked.returncode == 0


@pytest.mark.guarantee("G-CONTAINER-3")
@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_password_is_on_a_command_line(name: str) -> None:
    service = SERVICES[name]
    words = " ".join([*service.get("command", ()), *service.get("healthcheck", {}).get("test", ())])
    assert "PASSWORD" not in words


@pytest.mark.guarantee("G-CONTAINER-1")
@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_has_no_capability_gains_none_and_is_bounded(name: str) -> None:
    service = SERVICES[name]
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service, "drivers run as the worker does: it needs none"
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"] > 0
    if name == "redis":  # Compose writes its configuration into the container
        assert "configs" in service
    else:
        assert service["read_only"] is True


@pytest.mark.guarantee("G-CONTAINER-1")
@pytest.mark.parametrize("name", sorted(SERVICES))
def test_no_service_is_root(name: str) -> None:
    service = SERVICES[name]
    user = re.findall(r"^USER (\w+)$", IMAGE, re.M)[-1] if "build" in service else service["user"]
    assert user in {"headgate", "valkey", "postgres"}


@pytest.mark.guarantee("G-CONTAINER-4")
def test_walls_of_drivers_take_no_capability_and_change_the_worker_alone() -> None:
    assert set(ISOLATION) == {"worker"}
    worker = ISOLATION["worker"]
    assert set(worker) == {"security_opt", "environment"}
    assert worker["environment"] == {"HEADGATE_ISOLATION": "bubblewrap"}
    assert worker["security_opt"] == [
        "seccomp=docker-seccomp.json",
        "apparmor=unconfined",
        "systempaths=unconfined",
    ]
    assert " bubblewrap " in IMAGE
    assert all(f"`{option}`" in _isolation_section() for option in worker["security_opt"])


def test_without_walls_the_containers_are_for_one_team_and_the_page_says_so() -> None:
    for service in (*SERVICES.values(), *ISOLATION.values()):
        assert "cap_add" not in service
    assert "drivers are not isolated, and the installation [serves one" in _isolation_section()


def test_the_profile_for_walls_lets_through_what_bubblewrap_calls_and_no_door_to_the_kernel() -> (
    None
):
    profile = json.loads((REPOSITORY / "docker-seccomp.json").read_text())
    [rule] = profile["syscalls"]
    assert (profile["defaultAction"], rule["action"]) == ("SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO")
    refused = set(rule["names"])
    assert not refused & {"clone", "clone3", "unshare", "mount", "umount2", "pivot_root"}
    assert {"bpf", "init_module", "finit_module", "kexec_load", "keyctl", "setns"} <= refused


def test_spark_uis_are_shown_from_the_network_of_their_drivers() -> None:
    """Drivers' UIs listen on the loopback of the worker's container, which nothing else is in."""
    service, worker = SERVICES["spark-ui"], SERVICES["worker"]
    assert service["network_mode"] == "service:worker"
    assert service["environment"]["HEADGATE_HOST"] == worker["hostname"]
    [port] = [word.partition("=")[2] for word in service["command"] if word.startswith("--port")]
    assert worker["ports"] == [f"127.0.0.1:${{HEADGATE_SPARK_UI_PORT:-{port}}}:{port}"]
    module, _, name = service["command"][1].partition(":")
    assert (REPOSITORY / (module.replace(".", "/") + ".py")).exists()
    assert name == "application"


@pytest.mark.guarantee("G-CONTAINER-2")
def test_nothing_is_published_beyond_this_machine() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 2
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.guarantee("G-CONTAINER-3")
def test_redis_is_no_root_starts_without_a_shell_and_wants_its_password() -> None:
    redis = SERVICES["redis"]
    assert redis["user"] == "valkey"
    assert redis["command"][0] == "valkey-server"
    [config] = redis["configs"]
    assert redis["command"][1:] == [config["target"]]
    lines = COMPOSE["configs"][config["source"]]["content"].splitlines()
    assert "requirepass ${REDIS_PASSWORD:?write it into .env}" in lines
    assert {"appendonly yes", "maxmemory-policy noeviction"} <= set(lines)


def test_drivers_find_the_kafka_connector_where_the_image_has_it() -> None:
    [folder] = re.findall(r"HEADGATE_CONNECTORS=(\S+)", IMAGE)
    assert f"COPY --from=connectors {folder} {folder}\n" in IMAGE
    [stage] = re.findall(r"^FROM \S+ AS connectors\n(.*?)(?=^FROM )", DOCKERFILE, re.S | re.M)
    assert f"HEADGATE_CONNECTORS={folder} python bootstrap/fetch.py --connector" in stage
    assert "connectors/kafka" in _copied(stage)


def test_the_page_names_services_and_commands_that_are_there() -> None:
    page = _section("one-machine.md", "Containers")
    calls = re.findall(r"docker compose exec (?:-\S+ )*(\S+) python manage\.py (\w+)", page)
    assert len(calls) >= 2
    assert {service for service, _ in calls} <= set(SERVICES)
    commands = {*get_commands()}
    assert {command for _, command in calls} <= commands
    assert set(re.findall(r"manage\.py (\w+)", page)) <= commands
    assert ".venv" not in page
    on_a_host = {"make try-containers"}
    assert set(re.findall(r"make [a-z]+[a-z-]*", page)) <= on_a_host


def test_each_base_image_has_a_stand_in_for_hosts_without_a_registry(stand_ins: ModuleType) -> None:
    [base] = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.M)
    fetched = {service["image"] for service in SERVICES.values() if "build" not in service}
    assert set(stand_ins.STAND_INS) == {base, *fetched}
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.M)) == {"${BASE}"}


def test_make_shows_the_target_that_tries_the_containers() -> None:
    told = subprocess.run(
        ["make", "help"], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    assert re.search(r"^  make try-containers\t\w+", told.stdout, re.M)


def test_an_engine_that_does_not_answer_is_what_the_advice_is_about(
    stand_ins: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without its daemon `docker pull` fails too: nobody is led to stand-ins for base images."""
    docker = tmp_path / "docker"
    docker.write_text(
        "#!/bin/sh\necho 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. "
        "Is the docker daemon running?' >&2\nexit 1\n"
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SystemExit):
        stand_ins.insist_on_engine()
    said = capsys.readouterr().err
    assert "does not respond: Cannot connect to the Docker daemon" in said
    assert "Start it" in said
    assert "stand-ins" not in said

    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(SystemExit):
        stand_ins.insist_on_engine()
    assert "Install Docker" in capsys.readouterr().err
