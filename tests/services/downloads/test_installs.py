"""A button makes the worker of the host download; progress and errors are the operation's."""

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from headgate_server import downloads
from queries.domain.errors import Conflict, Invalid, NotAllowed
from queries.domain.states import OperationOutcome, Verb
from queries.models.access.audit_trail import AuditEntry
from queries.models.history import Operation
from queries.selectors.definitions.connectors import ready_connectors
from queries.selectors.definitions.sparks import installed_sparks
from queries.services.downloads.installs import LIMIT, Install, begin_install, last_install
from queries.services.procedures.engine import advance, due_operations
from tests.launchers.in_memory import InMemoryLauncher
from tests.scenarios.stage import Stage
from tests.services.downloads.host import HostFolders

pytestmark = pytest.mark.django_db

_MAVEN = """#!/bin/sh
for argument do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done
echo "Downloaded from central: https://example.org/a/b/delta-1.0.jar (12 kB at 1 kB/s)"
env > "$out/seen.txt"
echo jar > "$out/delta-1.0.jar"
"""
_FAILING = """#!/bin/sh
echo "[ERROR] Could not find artifact a:b:jar:9 in central (https://example.org) -> [Help 1]"
exit 1
"""
_PIP = (
    'mkdir -p "$0/pyspark/jars"; echo Collecting pyspark; echo core > "$0/pyspark/jars/core-4.jar"'
)
_SLOW = "#!/bin/sh\necho started\nsleep 600\n"


@pytest.fixture
def host(tmp_path: Path, settings: Any) -> HostFolders:
    return HostFolders(tmp_path, settings)


@pytest.fixture(autouse=True)
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a script onto the PATH as mvn; return what replaces it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(
        downloads, "pip_install", lambda _, folder: [shutil.which("sh"), "-c", _PIP, str(folder)]
    )

    def put(script: str) -> None:
        (folder / "mvn").write_text(script)
        (folder / "mvn").chmod(0o755)

    put(_MAVEN)
    return put


def _asked(**given: Any) -> Operation:
    asked: dict[str, Any] = {"spark": "4.2", "actor": "ada", "now": timezone.now()} | given
    return begin_install(**asked)


def _worked(operation: Operation, *, stopping: bool = False) -> Operation:
    """Have the worker take an operation."""
    work = {Verb.INSTALL: Install(lambda: stopping)}
    advance(operation.pk, procedures=work, launcher=InMemoryLauncher(), now=timezone.now())
    operation.refresh_from_db()
    return operation


def test_a_connector_brings_the_spark_that_it_is_for(host: HostFolders) -> None:
    operation = _asked(connector="kafka")
    assert due_operations(now=timezone.now()) == [operation.pk]
    assert [step["name"] for step in operation.steps] == [
        "Install Spark 4.2",
        "Install connector kafka for Spark 4.2",
    ]
    _worked(operation)
    assert operation.outcome == OperationOutcome.DONE
    assert [step["state"] for step in operation.steps] == ["DONE", "DONE"]
    assert installed_sparks() == {"4.2", "4.3"}
    assert ready_connectors("4.2") == {"kafka"}
    assert last_install() == operation
    [entry] = AuditEntry.objects.filter(kind="installed")
    assert entry.subject == "connector kafka for Spark 4.2"
    assert (entry.actor, entry.details["did"]) == ("ada", "requested")
    modes = {
        oct(path.stat().st_mode & 0o777) for path in host.connectors.rglob("*") if path.is_dir()
    }
    assert modes == {"0o755"}  # drivers of other accounts read it


def test_maven_gets_no_secret_of_the_worker(
    host: HostFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://ada:secret@db/headgate")
    monkeypatch.setenv("MAVEN_OPTS", "-Xmx1g")
    _worked(_asked(spark="4.3", connector="own", coordinates=["a:b:1"]))
    seen = (host.connectors / "own" / "seen.txt").read_text()
    assert "MAVEN_OPTS=-Xmx1g" in seen
    assert "DATABASE_URL" not in seen


def test_a_failure_ends_the_operation_with_mavens_reason_and_a_way_out(
    host: HostFolders, maven: Callable[[str], None]
) -> None:
    maven(_FAILING)
    host.spark("4.2")
    operation = _worked(_asked(connector="own", coordinates=["a:b:9"]))
    assert operation.outcome == OperationOutcome.FAILED
    assert "Could not find artifact a:b:jar:9 in central" in operation.detail.text
    assert "Check the network and the coordinates" in operation.detail.text
    assert [step["state"] for step in operation.steps] == ["FAILED"]
    assert ready_connectors("4.2") == frozenset()
    _asked(connector="kafka")  # the next one may begin


def test_one_installation_at_a_time_on_a_host(host: HostFolders) -> None:
    first = _asked(connector="kafka")
    with pytest.raises(Conflict, match="connector kafka for Spark 4") as refused:
        _asked()
    assert str(first.uuid) in refused.value.way_out
    Operation.objects.update(host="another")
    _asked()


def test_a_worker_that_stops_leaves_the_operation_to_the_next(
    host: HostFolders, maven: Callable[[str], None]
) -> None:
    maven(_SLOW)
    host.spark("4.2")
    operation = _worked(_asked(connector="kafka"), stopping=True)
    assert operation.outcome == OperationOutcome.OPEN
    maven(_MAVEN)
    assert due_operations(now=timezone.now()) == [operation.pk]
    assert _worked(operation).outcome == OperationOutcome.DONE


def test_a_download_ends_at_the_operations_deadline(
    host: HostFolders, maven: Callable[[str], None]
) -> None:
    maven(_SLOW)
    host.spark("4.2")
    operation = _asked(connector="kafka", now=timezone.now() - LIMIT + timedelta(seconds=1))
    _worked(operation)
    assert operation.outcome == OperationOutcome.FAILED
    assert "longer than 60 minutes" in operation.detail.text


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"spark": "3.5"}, "spark", "Use 4.1, 4.2, 4.3."),
        ({"spark": "4.3"}, "spark", "Headgate's own version"),
        ({"coordinates": ["a:b:1"]}, "connector", "Give the coordinates a name."),
        ({"connector": "nonsense"}, "connector", "has no recipe for Spark 4.2"),
        ({"connector": "own", "coordinates": ["a:b"]}, "coordinates", "Use GROUP:ARTIFACT:VERSION"),
        ({"connector": "O/../x", "coordinates": ["a:b:1"]}, "coordinates", "valid connector name"),
        ({"connector": "own", "coordinates": ["a:b:1"] * 21}, "coordinates", "at most 20"),
        ({"connector": "kafka", "coordinates": ["a:b:1"]}, "coordinates", "name of a recipe"),
    ],
)
def test_what_cannot_be_installed_is_refused_at_its_field(
    host: HostFolders, given: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(Invalid) as refused:
        _asked(**given)
    [problem] = refused.value.problems
    assert problem.field == field
    assert said in f"{problem.message} {problem.way_out}"


def test_a_spark_that_is_installed_needs_no_operation(host: HostFolders) -> None:
    host.spark("4.2")
    with pytest.raises(NotAllowed, match="already installed"):
        _asked()


def test_a_file_that_is_not_utf_8_ends_the_installation_and_blocks_no_other(
    host: HostFolders,
) -> None:
    host.spark("4.2")
    folder = host.connector("own", "4.2")
    (folder / ".pom.sha256").write_text("an older one\n")
    (folder / "connector.toml").write_bytes('about = "für uns"\n'.encode("latin-1"))
    operation = _worked(_asked(connector="own", coordinates=["a:b:1"]))
    assert operation.outcome == OperationOutcome.FAILED
    assert "A file cannot be read" in operation.detail.text
    _asked(connector="kafka")


def test_a_connector_that_was_put_there_by_hand_is_not_replaced(host: HostFolders) -> None:
    host.spark("4.2")
    host.connector("own", "4.2")
    with pytest.raises(Conflict, match=r"connector own for Spark 4\.2 was put there by hand"):
        _asked(connector="own", coordinates=["a:b:1"])


def test_a_connector_that_a_driver_uses_is_not_replaced(host: HostFolders, stage: Stage) -> None:
    host.spark("4.2")
    (host.connector("kafka", "4.2") / ".pom.sha256").write_text("an older one\n")
    stage.launcher.obliging = True
    stage.application("copies", spark="4.2", connectors=["kafka"])
    stage.query("copy", "copies")
    stage.up("copy", "copies")
    with pytest.raises(Conflict, match=r"is used by driver \d+ of application copies"):
        _asked(connector="kafka")
