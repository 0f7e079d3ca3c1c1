"""`make s3` and `make hadoop`: started once, ended by `make stop`, and the same after that."""

import xml.etree.ElementTree as ElementTree
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from controlplane.home import Home
from installation.machine.trial_servers import SECRETS, Gateway, MiniHadoop
from queries.models.applications import Application
from queries.models.definitions import Checkpoint, Query
from tests import pieces
from tests.storage.stores import S3Store


@pytest.fixture
def home(tmp_path: Path, settings: Any) -> Home:
    settings.HOME = Home(tmp_path)
    settings.HEADGATE_HOME = tmp_path
    settings.SECRETS_DIR = tmp_path / "secrets"
    settings.CHECKPOINTS_DIR = tmp_path / "checkpoints"
    settings.HADOOP_PORT = pieces.free_port()
    settings.HOME.make()
    return settings.HOME  # type: ignore[no-any-return]


def said(*command: str) -> str:
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


@pytest.mark.s3
@pytest.mark.django_db
def test_the_gateway_keeps_its_address_and_its_keys_to_itself(home: Home, settings: Any) -> None:
    (home.s3 / "bin").mkdir(parents=True)
    (home.s3 / "bin" / "versitygw").symlink_to(pieces.versitygw())
    gateway = Gateway(home.s3, usual_port=None)
    assert not gateway.is_set_up()  # a program alone is no wish: CI builds it too
    address = gateway.address()
    try:
        started = said("s3")
        assert f"bucket headgate at {gateway.place}" in started
        for name, key in zip(SECRETS, (address.access_key, address.secret_key), strict=True):
            secret = settings.SECRETS_DIR / name
            assert secret.read_text().strip() == key
            assert oct(secret.stat().st_mode & 0o777) == "0o600"
            assert f"file:{name}" in started
            assert key not in started
            assert key not in Path(f"/proc/{gateway.process().pid}/cmdline").read_text()  # type: ignore[union-attr]
        assert "The gateway was already running." in said("s3")
        assert "Ended the S3 gateway. Its objects are retained." in said("stop")
        assert gateway.process() is None
        assert "Nothing is running." in said("stop")
        said("s3")
        assert Gateway(home.s3).address() == address
        assert "The S3 gateway is stopped." in said("s3", "--stop")
        assert not gateway.has_crashed()
    finally:
        gateway.stop()


@pytest.mark.hdfs
@pytest.mark.django_db
def test_hadoop_writes_what_clients_need_and_no_more(home: Home, settings: Any) -> None:
    home.hadoop.mkdir()
    for part in ("jars", "classes"):
        (home.hadoop / part).symlink_to(pieces.hadoop() / part)
    hadoop = MiniHadoop(home.hadoop, port=settings.HADOOP_PORT)
    try:
        started = said("hadoop")
        assert f"HDFS at hdfs://localhost:{settings.HADOOP_PORT} and YARN" in started
        assert f"HADOOP_CONF_DIR={hadoop.conf}" in started
        assert values(hadoop.conf / "core-site.xml") == {"fs.defaultFS": hadoop.place}
        yarn = values(hadoop.conf / "yarn-site.xml")
        assert sorted(yarn) == [
            "yarn.resourcemanager.address",
            "yarn.resourcemanager.admin.address",
            "yarn.resourcemanager.scheduler.address",
            "yarn.resourcemanager.webapp.address",
        ]
        assert all(value.startswith("localhost:") for value in yarn.values())
        assert "Ended the Hadoop cluster. Its files are retained." in said("stop")
        assert hadoop.process() is None
    finally:
        hadoop.stop()


def values(file: Path) -> dict[str, str]:
    found = ElementTree.parse(file).getroot()
    return {one.findtext("name", ""): one.findtext("value", "") for one in found}


@pytest.mark.parametrize("server", ["s3", "hadoop"])
def test_without_its_program_the_command_says_how_to_get_it(
    home: Home, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        call_command(server)
    assert f"`make {server}`" in capsys.readouterr().err


@pytest.mark.s3
@pytest.mark.django_db
def test_the_demo_gets_a_query_whose_checkpoint_is_in_the_bucket(
    s3: S3Store, home: Home, settings: Any
) -> None:
    settings.CONNECTORS_DIR = home.root / "none"
    with pytest.raises(CommandError, match="ARGS=s3"):
        call_command("install_demo", s3=s3.endpoint, stdout=StringIO())
    settings.CONNECTORS_DIR = pieces.s3_connector().parent
    assert "delays-on-s3" in said("install_demo", f"--s3={s3.endpoint}")

    query = Query.objects.get(name="delays-on-s3")
    assert query.desired == "RUNNING"
    location = Checkpoint.objects.get(query=query).location
    assert location == f"{s3.root}/checkpoints/delays-on-s3"
    conf = Application.objects.get(name="flights-s3").revisions.get().spec["conf"]
    keys = {conf[f"spark.hadoop.fs.s3a.{name}.key"] for name in ("access", "secret")}
    assert keys == {f"file:{name}" for name in s3.server.secrets()}

    assert said("install_demo", f"--s3={s3.endpoint}") == ""
