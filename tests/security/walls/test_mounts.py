"""What a driver within walls sees: the innermost folder decides, and nothing vanishes."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from headgate_ground import packages
from headgate_server import places
from queries.domain.protocol import TMP
from queries.driver_folder import DriverFolder
from queries.launchers.process.isolation import mounts
from queries.launchers.process.isolation.bubblewrap import NAMESPACES
from tests.launchers.test_contract import _spec

pytestmark = pytest.mark.walls


def _run(home: Path, command: str, **spec: tuple[str, ...] | str) -> str:
    """Run a shell's command as a driver would be run; return what it says."""
    folder = DriverFolder.make(home / "drivers/app/1")
    (folder.own / TMP).mkdir(exist_ok=True)
    shown = mounts.mounts(replace(_spec(1), **spec), folder, os.environ)  # type: ignore[arg-type]
    done = subprocess.run(
        ["bwrap", *NAMESPACES, *shown.options, "--", "/bin/sh", "-c", command],
        pass_fds=shown.descriptors,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout + done.stderr


def _is_refused(said: str) -> bool:
    return "Read-only file system" in said


def test_own_folders_are_closed_within_a_data_root_and_data_within_them_is_open(
    tmp_path: Path,
) -> None:
    home = tmp_path / "root/home"
    for name in ("data", "secrets"):
        (home / name).mkdir(parents=True)
        (home / name / "file").write_text(name)
    roots = (f"file://{tmp_path}/root", f"file://{home}/data")
    said = _run(
        home,
        f"cat {home}/data/file; echo more >> {home}/data/file; ls {home}; touch {home}/mine; "
        f"echo seen > {tmp_path}/root/written",
        data_roots=roots,
        own_folders=(f"file://{home}",),
    )
    assert said.startswith("data")
    assert "secrets" not in said
    assert _is_refused(said)
    assert (home / "data/file").read_text() == "datamore\n"
    assert (tmp_path / "root/written").exists()
    assert not (home / "mine").exists()


@pytest.mark.guarantee("G-ISOLATION-7")
def test_what_is_written_to_a_root_that_is_not_there_fails_rather_than_vanishes(
    tmp_path: Path,
) -> None:
    """The root lies below /tmp, where a driver has a scratch folder of its own."""
    assert tmp_path.is_relative_to("/tmp")
    missing = tmp_path / "missing"
    said = _run(tmp_path, f"mkdir {missing}/folder", data_roots=(f"file://{missing}",))
    assert _is_refused(said)
    assert _is_refused(_run(tmp_path, "mkdir /somewhere"))
    assert _run(tmp_path, "touch /tmp/scratch && echo kept") == "kept\n"


def test_a_file_that_is_replaced_by_rename_is_the_new_one_within(tmp_path: Path) -> None:
    folder = DriverFolder.make(tmp_path / "drivers/app/1")
    path = folder.control / "assignment.json"
    path.write_text("old")
    replaced = f"echo new > {path}.draft && mv {path}.draft {path}"
    inside = f"cat {path}; read line; cat {path}"
    (folder.own / TMP).mkdir()
    options = mounts.mounts(_spec(1), folder, os.environ).options
    with subprocess.Popen(
        ["bwrap", *NAMESPACES, *options, "--", "/bin/sh", "-c", inside],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(3) == "old"
        subprocess.run(replaced, shell=True, check=True)
        said, _ = process.communicate("go\n", timeout=60)
    assert said == "new\n"


@pytest.mark.guarantee("G-ISOLATION-13")
def test_a_checkpoint_is_shown_and_what_a_link_in_its_place_leads_to_is_not(tmp_path: Path) -> None:
    place, secrets = tmp_path / "checkpoints/q1", tmp_path / "secrets"
    for folder in (place, secrets):
        folder.mkdir(parents=True)
    (secrets / "theirs").write_text("their-password")
    look = f"touch {place}/mine && echo written; ls {place}; ls -l /proc/self/fd"
    said = _run(tmp_path, look, checkpoints=(place.as_uri(),))
    assert "written" in said
    assert (place / "mine").exists()
    assert str(tmp_path) not in said  # a folder that was open out here would be a way out
    (place / "mine").unlink()
    place.rmdir()
    place.symlink_to(secrets)
    said = _run(tmp_path, look, checkpoints=(place.as_uri(),))
    assert "written" not in said
    assert "theirs" not in said
    assert not (secrets / "mine").exists()


def test_the_control_planes_own_folder_in_etc_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etc = tmp_path / "etc"
    (etc / "headgate").mkdir(parents=True)
    (etc / "headgate/key.pem").write_text("a-private-key")
    look = f"cat {etc}/headgate/key.pem"
    assert "a-private-key" in _run(tmp_path, look, code_roots=(str(etc),))
    monkeypatch.setattr(mounts, "_OURS", str(etc / "headgate"))
    assert "a-private-key" not in _run(tmp_path, look, code_roots=(str(etc),))
    monkeypatch.undo()
    assert mounts._OURS == "/etc/headgate"


KERNELS = (
    *("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/self/oom_score_adj"),
    *("/sys/kernel/profiling", "/sys/power/state"),
)


@pytest.mark.guarantee("G-ISOLATION-4")
def test_no_file_of_the_kernel_can_be_written_and_what_containers_hide_is_hidden(
    tmp_path: Path,
) -> None:
    for path in filter(os.path.exists, KERNELS):
        assert _is_refused(_run(tmp_path, f": >> {path}")), path
    hidden = [path for path in mounts._KERNELS_OWN if Path(path).exists()]
    assert {"/proc/interrupts", "/sys/firmware"} <= set(hidden)
    for path in hidden:
        look = f"if [ -d {path} ]; then ls {path}; else cat {path}; fi 2>/dev/null"
        assert _run(tmp_path, look) == "", path


def test_the_lists_of_passwords_are_hidden_where_the_worker_is_root(tmp_path: Path) -> None:
    said = _run(tmp_path, "cat /etc/shadow /etc/passwd")
    assert "root:x:0:0" in said  # passwd, which Hadoop's log-in reads
    assert Path("/etc/shadow").exists()
    assert not any(line.startswith("root:*") or ":$" in line for line in said.splitlines())


@pytest.mark.guarantee("G-ISOLATION-7")
def test_a_driver_reads_its_own_code_and_packages_and_those_of_no_other(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("code/mine/0", "code/other/0", "packages/mine", "packages/other"):
        (home / name).mkdir(parents=True)
        (home / name / "file").write_text(name)
    said = _run(
        home,
        f"cat {home}/code/*/0/file {home}/packages/*/file; touch {home}/packages/mine/more",
        code_roots=(str(home / "code/mine/0"),),
        packages=str(home / "packages/mine"),
        own_folders=(f"file://{home}",),
    )
    assert said.startswith("code/mine/0packages/mine")
    assert "other" not in said
    assert _is_refused(said)
    assert not (home / "packages/mine/more").exists()


def test_of_our_packages_in_site_packages_a_driver_sees_those_that_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each name of the environment, which may be reached through a link."""
    installed = tmp_path / "env/lib/site-packages"
    for name in (*packages.OURS, "somebodys"):
        (installed / name).mkdir(parents=True)
        (installed / name / "module.py").touch()
    (tmp_path / "link").symlink_to(tmp_path / "env")
    monkeypatch.setattr(places, "ROOT", installed)
    monkeypatch.setattr(mounts, "_python", lambda: {f"{tmp_path}/env", f"{tmp_path}/link"})
    for prefix in ("env", "link"):
        said = _run(tmp_path, f"cd {tmp_path}/{prefix}/lib/site-packages; ls */module.py")
        seen = {line.partition("/")[0] for line in said.splitlines()}
        assert seen == {*packages.DRIVER, "somebodys"}
