"""What a trial Kubernetes cluster is made of, without starting one."""

import json
import re
import runpy
import ssl
import tarfile
from pathlib import Path

import pytest
import yaml

from controlplane.home import Home, StartProblem
from headgate_server import container_images, kubernetes
from headgate_server.downloads import DownloadFailed
from installation.machine import kubernetes_nodes
from installation.machine.kubernetes import Kubernetes
from installation.machine.kubernetes_keys import Keys
from installation.machine.kubernetes_nodes import Node

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is the whole PATH, of an account that is not root."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(kubernetes, "CNI", tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    return tmp_path


def test_each_missing_piece_is_named_with_the_command_that_installs_it(bare: Path) -> None:
    (bare / "loopback").touch()
    missing = kubernetes.missing_to_run()
    assert "needs root" in missing[0]
    packages = [re.findall(r"`sudo apt-get install (\S+)`", sentence) for sentence in missing[1:]]
    assert packages == [
        *(["containerd"], ["containerd"], ["runc"], ["iproute2"]),
        ["containernetworking-plugins"],
    ]
    assert "bridge, host-local are missing" in missing[-1]
    assert [sentence.partition(":")[0] for sentence in kubernetes.missing_to_build()] == [
        "Go 1.25 or newer is missing",
        "dpkg is missing",
    ]


def test_a_container_in_which_root_may_not_do_what_nodes_do_is_told(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for name in ("containerd", "ctr", "runc", "mount", "umount", "bridge", "host-local"):
        (bare / name).write_text("#!/bin/sh\n")
        (bare / name).chmod(0o755)
    (bare / "loopback").touch()
    (bare / "ip").write_text("#!/bin/sh\necho Operation not permitted >&2\nexit 2\n")
    (bare / "ip").chmod(0o755)
    (refused,) = kubernetes.missing_to_run()
    assert "to make a pair of network interfaces: Operation not permitted" in refused
    (bare / "ip").write_text("#!/bin/sh\n")
    assert kubernetes.missing_to_run() == []


def test_an_old_go_and_missing_packages_are_named(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("go", "dpkg-query"):
        (bare / name).write_text("#!/bin/sh\necho go version go1.24.9 linux/amd64\n")
        (bare / name).chmod(0o755)
    monkeypatch.setattr(container_images, "is_installed", lambda name: False)
    old, python, java = kubernetes.missing_to_build()
    assert "Go 1.25 or newer is missing" in old
    assert "`sudo apt-get install python3." in python
    assert "`sudo apt-get install openjdk-17-jre-headless`" in java
    (bare / "go").write_text("#!/bin/sh\necho go version go1.26 linux/amd64\n")
    assert kubernetes.missing_to_build() == [python, java]


def test_missing_pieces_are_one_problem_with_a_line_each() -> None:
    kubernetes.check([])
    with pytest.raises(DownloadFailed) as failed:
        kubernetes.check(["One is missing.", "Two is missing."])
    assert failed.value.problem == "One is missing.\nTwo is missing."


def test_a_start_names_what_is_not_built_and_a_path_that_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "missing_to_run", list)
    with pytest.raises(StartProblem, match="Build it with `make kubernetes`"):
        Kubernetes(tmp_path, 16443).start()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubernetes").touch()
    with pytest.raises(StartProblem, match="Set HEADGATE_HOME"):
        Kubernetes(tmp_path / ("long" * 20), 16443, built=tmp_path).start()


def test_two_clusters_share_nothing(tmp_path: Path) -> None:
    def shared(cluster: Kubernetes) -> set[str]:
        nodes = [(one.address, one.bridge, str(one.folder)) for one in cluster.nodes]
        return {cluster.server, *(part for node in nodes for part in node)}

    one, two = Kubernetes(tmp_path / "one"), Kubernetes(tmp_path / "two", 16446)
    assert (one.server, two.server) == ("https://10.244.1.1:16443", "https://10.247.1.1:16446")
    assert len(shared(one)) == 7
    assert not shared(one) & shared(two)
    assert all(
        100 <= Kubernetes(tmp_path, port).network <= 255 for port in range(1024, 65_534, 1001)
    )
    assert all(len(node.bridge) <= 15 for node in two.nodes)


def test_a_network_is_of_one_cluster_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes_nodes, "_HELD", tmp_path / "held")
    monkeypatch.setattr("installation.machine.kubernetes._LONGEST_ROOT", 500)
    monkeypatch.setattr(kubernetes, "missing_to_run", list)
    for name in ("one", "two"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "kubernetes").touch()
    one, two = Kubernetes(tmp_path / "one"), Kubernetes(tmp_path / "two")
    assert kubernetes_nodes.claim(one.network, one.root)
    assert kubernetes_nodes.claim(one.network, one.root)
    with pytest.raises(StartProblem, match=f"cluster in {one.root} has the network 10.244.0.0/16"):
        two.start()
    assert not two.stop()  # and ends nothing of the other's
    assert kubernetes_nodes.owner(one.network) == one.root


def test_the_network_of_a_deleted_installation_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_HELD", "_INTERFACES", "_CGROUPS"):
        monkeypatch.setattr(kubernetes_nodes, name, tmp_path / name)
    (tmp_path / "_CGROUPS").mkdir()
    (tmp_path / "_CGROUPS" / "cgroup.controllers").touch()
    deleted, new = Kubernetes(tmp_path / "deleted"), Kubernetes(tmp_path / "new")
    assert kubernetes_nodes.claim(deleted.network, deleted.root)
    new._claim()
    assert kubernetes_nodes.owner(new.network) == new.root
    assert kubernetes_nodes.owned(deleted.root) == []


def test_an_installation_without_a_cluster_has_nothing_to_end(tmp_path: Path) -> None:
    cluster = Kubernetes.of(Home(tmp_path))
    assert not cluster.exists()
    assert not cluster.stop()


def test_sysctls_are_as_before_once_the_last_cluster_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SYSCTLS", "_INTERFACES", "_HELD"):
        monkeypatch.setattr(kubernetes_nodes, name, tmp_path / name)
    monkeypatch.setattr(kubernetes_nodes, "_BEFORE", tmp_path / "_HELD" / "sysctls")
    panic = tmp_path / "_SYSCTLS" / "kernel" / "panic"
    panic.parent.mkdir(parents=True)
    panic.write_text("0\n")
    other = tmp_path / "_INTERFACES" / "headgate245-1"
    other.mkdir(parents=True)
    kubernetes_nodes.remember_sysctls()
    panic.write_text("10\n")  # as a kubelet does
    kubernetes_nodes.remember_sysctls()
    kubernetes_nodes.restore_sysctls()
    assert panic.read_text() == "10\n"
    other.rmdir()
    kubernetes_nodes.restore_sysctls()
    assert panic.read_text() == "0"
    assert not any((tmp_path / "_HELD").iterdir())


def test_the_keys_are_made_once_and_a_kubeconfig_is_one_private_file(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.make(["127.0.0.1", "10.244.1.1"])
    made = {file.name: file.read_bytes() for file in keys.folder.iterdir()}
    keys.make(["127.0.0.1", "10.244.1.1"])
    assert {file.name: file.read_bytes() for file in keys.folder.iterdir()} == made
    context = ssl.create_default_context(cafile=str(keys.authority))
    context.load_cert_chain(keys.certificate, keys.key)

    file = tmp_path / "kubeconfig"
    keys.write_kubeconfig(file, "spark", "https://10.244.1.1:16443")
    assert file.stat().st_mode & 0o777 == 0o600
    written = yaml.safe_load(file.read_text())
    (cluster,), (user,) = written["clusters"], written["users"]
    assert cluster["cluster"]["server"] == "https://10.244.1.1:16443"
    assert cluster["cluster"]["certificate-authority-data"]
    assert f"{user['user']['token']},system:serviceaccount:headgate:spark," in str(made)


def test_keys_for_another_address_are_new(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.make(["10.244.1.1"])
    before = keys.certificate.read_bytes()
    keys.make(["10.188.1.1"])
    assert keys.certificate.read_bytes() != before
    ssl.create_default_context(cafile=str(keys.authority)).load_cert_chain(
        keys.certificate, keys.key
    )


def test_an_executor_gets_its_options_in_the_order_of_their_numbers() -> None:
    variables = {
        **{f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number}" for number in (10, 9, 0)},
        **{"SPARK_EXECUTOR_MEMORY": "512m", "SPARK_HOME": "/spark", "JAVA_HOME": "/java"},
        **{"SPARK_CONF_DIR": "/conf", "SPARK_CLASSPATH": "/own.jar", "SPARK_EXECUTOR_CORES": "2"},
        **{"SPARK_DRIVER_URL": "spark://it", "SPARK_EXECUTOR_ID": "7"},
        **{"SPARK_APPLICATION_ID": "app", "SPARK_EXECUTOR_POD_IP": "10.244.1.5"},
        **{"SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "exec-7"},
    }
    entrypoint = runpy.run_path(str(REPOSITORY / "connectors" / "kubernetes" / "entrypoint.py"))
    command = entrypoint["executor"](variables)
    assert command[:4] == ["/java/bin/java", "-Dnumber=0", "-Dnumber=9", "-Dnumber=10"]
    assert command[4:8] == ["-Xms512m", "-Xmx512m", "-cp", "/conf:/spark/jars/*:/own.jar"]
    assert command[8].endswith(".KubernetesExecutorBackend")
    named = dict(zip(command[9::2], command[10::2], strict=True))
    assert named["--executor-id"] == "7"
    assert named["--podName"] == "exec-7"


def test_an_image_lists_its_layers_and_runs_as_its_account(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("content")
    image = container_images.Image(tmp_path / "it.tar", "headgate/it:1", {"User": "10001"})
    image.layer(lambda tar: tar.add(tmp_path / "file", "etc/file"))
    image.write()
    with tarfile.open(tmp_path / "it.tar") as tar:
        (manifest,) = json.loads(tar.extractfile("manifest.json").read())  # type: ignore[union-attr]
        assert manifest["RepoTags"] == ["headgate/it:1"]
        configuration = json.loads(tar.extractfile(manifest["Config"]).read())  # type: ignore[union-attr]
        (layer,) = manifest["Layers"]
        assert configuration["config"] == {"User": "10001"}
        assert configuration["rootfs"]["diff_ids"] == [f"sha256:{layer.removesuffix('.tar')}"]
        with tarfile.open(fileobj=tar.extractfile(layer)) as files:
            assert files.getnames() == ["etc/file"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "it.tar"]


def test_a_nodes_pods_use_its_bridge_alone(tmp_path: Path) -> None:
    node = Node(tmp_path / "node-2", 244, 2)
    (plugin,) = node._network()["plugins"]
    assert plugin["bridge"] == node.bridge
    assert "isGateway" not in plugin  # it makes the host a router of all its interfaces
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24", "gateway": "10.244.2.1"}]]
