"""What an application names or a driver runs on stays; what nothing has named for long goes."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from queries.domain.errors import Conflict
from queries.models.access.audit import AuditEntry
from queries.models.applications import Application
from queries.roles import AuthorRights
from queries.selectors.spark_folders import installed_sparks
from queries.services import downloads
from queries.services.definitions import catalog
from queries.services.downloads import prune_sparks, remove_connector, remove_spark
from queries.services.probes.preflight import begin_preflight
from tests.scenarios.stage import Stage
from tests.services.downloads.host import HostFolders

pytestmark = pytest.mark.django_db


@pytest.fixture
def host(tmp_path: Path, settings: Any) -> HostFolders:
    return HostFolders(tmp_path, settings)


def _said(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_a_connector_that_nothing_uses_is_removed_and_the_act_is_recorded(
    host: HostFolders,
) -> None:
    folder = host.connector("delta", "4.2")
    ours = host.connector("delta")
    assert "Removed the connector delta for Spark 4.2." in _said(
        "connector", "remove", "delta", "--spark", "4.2"
    )
    assert not folder.exists()
    assert list(folder.parent.iterdir()) == []
    assert ours.exists()
    [entry] = AuditEntry.objects.filter(kind="installed")
    assert (entry.subject, entry.details["did"]) == ("connector delta for Spark 4.2", "removed")


def test_what_an_application_names_is_kept_and_the_application_is_named(
    host: HostFolders, stage: Stage
) -> None:
    folders = [host.spark("4.2"), host.connector("delta", "4.2"), host.connector("delta")]
    stage.application("tables", spark="4.2", connectors=["delta"])
    with pytest.raises(CommandError, match=r"delta for Spark 4\.2 is used by application tables"):
        _said("connector", "remove", "delta", "--spark", "4.2")
    with pytest.raises(CommandError, match=r"Spark 4\.2 is used by application tables"):
        _said("spark", "remove", "4.2")
    assert all(folder.exists() for folder in folders)
    remove_connector("delta", "4.3", actor="aude", now=timezone.now())  # nothing uses that one
    assert [folder.exists() for folder in folders] == [True, True, False]


def test_what_a_driver_still_runs_on_is_kept_until_it_has_ended(
    host: HostFolders, stage: Stage
) -> None:
    spark = host.spark("4.2")
    host.connector("kafka", "4.2")
    stage.launcher.obliging = True
    stage.application("copies", spark="4.2", connectors=["kafka"])
    stage.query("copy", "copies")
    stage.up("copy", "copies")
    row = Application.objects.get(name="copies")
    catalog.revise_application(
        application=row,
        spec={"spark": "4.3"},
        expected_revision=None,
        actor="aude",
        now=timezone.now(),
    )
    with pytest.raises(Conflict, match=r"Spark 4\.2 is used by driver \d+ of application copies"):
        remove_spark("4.2", actor="aude", now=timezone.now())
    with pytest.raises(Conflict, match=r"used by driver \d+ of application copies"):
        remove_connector("kafka", "4.2", actor="aude", now=timezone.now())
    assert spark.exists()


def test_headgates_own_spark_and_what_is_not_installed_cannot_be_removed(
    host: HostFolders,
) -> None:
    with pytest.raises(CommandError, match="Headgate's own version"):
        _said("spark", "remove", "4.3")
    with pytest.raises(CommandError, match=r"Spark 4\.1 is not installed"):
        _said("spark", "remove", "4.1")
    with pytest.raises(CommandError, match=r"delta is not installed for Spark 4\.2"):
        _said("connector", "remove", "delta", "--spark", "4.2")


def test_before_the_first_start_a_removal_needs_no_database(
    host: HostFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = host.spark("4.1")
    monkeypatch.setattr(downloads, "is_set_up", lambda: False)
    remove_spark("4.1", actor="headgate-server", now=timezone.now())
    assert not folder.exists()


def test_a_list_shows_users_and_each_file_that_is_not_what_was_downloaded(
    host: HostFolders, stage: Stage
) -> None:
    assert _said("connector", "list") == "No connectors are installed.\n"
    jars = host.spark("4.2") / "pyspark" / "jars"
    delta = host.connector("delta", "4.2")
    host.connector("kafka")
    (host.connector("own") / "SHA256SUMS").unlink()
    stage.application("tables", spark="4.2", connectors=["delta"])
    (delta / "delta-1.0.jar").write_text("changed")
    (delta / "more-1.0.jar").touch()
    (jars / "spark-core_2.13-4.jar").unlink()
    assert _said("connector", "list").splitlines() == [
        "kafka for Spark 4.3: 1 jar, 0 MB, used by nothing",
        "  All jars match what was downloaded.",
        "own for Spark 4.3: 1 jar, 0 MB, used by nothing",
        "  It has no checksums: it was installed by hand, or by an older release.",
        "delta for Spark 4.2: 2 jars, 0 MB, used by application tables",
        "  File more-1.0.jar was added after the download.",
        "  File delta-1.0.jar differs from what was downloaded.",
    ]
    assert _said("spark", "list").splitlines() == [
        "Spark 4.3: Headgate's own, used by nothing",
        f"Spark 4.2: in {jars.parent.parent}, used by application tables",
        "  File spark-core_2.13-4.jar is missing.",
        "Spark 4.1: not installed, used by nothing",
        "Spark 4.0: not installed, used by nothing",
        "Spark 3.5: not installed, used by nothing",
    ]


def test_a_version_that_nothing_has_named_for_long_goes_and_one_that_is_named_stays(
    host: HostFolders, stage: Stage, settings: Any
) -> None:
    now = timezone.now()
    stage.application("tables", spark="4.2")
    for version in ("4.1", "4.2"):
        host.aged(host.spark(version), now, settings.CODE_DAYS + 1)
    assert prune_sparks(now=now) == 1
    assert installed_sparks() == {"4.2", "4.3"}
    Application.objects.update(archived_at=now)
    assert prune_sparks(now=now) == 0  # it was named until now
    host.aged(host.sparks / "4.2", now, settings.CODE_DAYS + 1)
    assert prune_sparks(now=now) == 1
    assert installed_sparks() == {"4.3"}


def test_a_version_that_cannot_be_removed_keeps_no_other_and_leftovers_go(
    host: HostFolders, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    for version in ("4.1", "4.2"):
        host.aged(host.spark(version), now, settings.CODE_DAYS + 1)
    left, busy = host.connectors / "4.2" / ".delta-abcd1234", host.sparks / ".4.2-abc"
    left.mkdir(parents=True)
    busy.mkdir()
    host.aged(left, now, 2)
    real = downloads.remove_spark

    def one_fails(spark: Any, **by: Any) -> None:
        if spark == "4.1":
            raise OSError("busy")
        real(spark, **by)

    monkeypatch.setattr(downloads, "remove_spark", one_fails)
    assert prune_sparks(now=now) == 1
    assert installed_sparks() == {"4.1", "4.3"}
    assert not left.exists()
    assert busy.exists()


def test_a_spark_that_a_preflight_tries_is_kept(host: HostFolders, stage: Stage) -> None:
    spark = host.spark("4.2")
    stage.application("copies")
    stage.query("copy", "copies")
    begin_preflight(
        query=stage.row("copy"),
        spec=None,
        spark="4.2",
        actor="ada",
        now=timezone.now(),
        rights=AuthorRights.ALL,
    )
    with pytest.raises(Conflict, match=r"used by operation \d+ of application copies"):
        remove_spark("4.2", actor="aude", now=timezone.now())
    assert spark.exists()


def test_hidden_folders_of_whoever_runs_the_host_stay(host: HostFolders) -> None:
    now = timezone.now()
    own = host.connectors / ".kafka-before-upgrade"
    own.mkdir(parents=True)
    host.aged(own, now, 2)
    prune_sparks(now=now)
    assert own.exists()
