"""A driver's code lays out its checkpoint and its sink so that work on them leaves them.

A snapshot, a rewind or a reset is done by the worker, outside of all walls. What it copies and
moves stays in the folders that it is about, in every mode.
"""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from headgate_ground.files import NotPlain
from queries.checkpoints.file_sink import LOG, FileSink
from queries.checkpoints.inside import MOST_OPEN, Inside
from queries.checkpoints.snapshot import CannotCopy, snapshot
from queries.domain.protocol import DriverSpec
from queries.driver_folder import DriverFolder
from queries.launchers.base import LaunchRefused
from queries.launchers.process.isolation.preparing import prepare
from tests.checkpoints.forms import put, write_checkpoint
from tests.launchers.test_contract import _spec

SECRET = "a-key-that-only-the-control-plane-has"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret_key"
    path.write_text(SECRET)
    return path


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Return a folder of the worker's Python: a file that is put there is run by it."""
    folder = tmp_path / "packages"
    folder.mkdir()
    return folder


def _entry(out: Path, batch: int, *paths: str) -> None:
    lines = [json.dumps({"path": f"file://{path}", "action": "add"}) for path in paths]
    put(out / LOG / str(batch), "\n".join(["v1", *lines]))


@pytest.mark.guarantee("G-ISOLATION-2")
def test_a_source_whose_name_leads_upwards_puts_nothing_next_to_the_copy(
    tmp_path: Path, packages: Path
) -> None:
    root = tmp_path / "home/checkpoints/delays"
    write_checkpoint(root, batches=range(1))
    about = (root / "offsets/0").read_text().split("\n")[1]
    up = "../../../../packages"
    put(root / "offsets/0", f'v2\n{about}\n0:{{"logOffset":0}}\n{up}:{{"logOffset":0}}')
    put(root / "a/b/c/d/packages/0", "import os")
    os.rename(root / "sources/0", root / "a/b/c/d/0")
    (root / "sources").rmdir()
    (root / "sources").symlink_to("a/b/c/d/e/f/g/h")
    (root / "a/b/c/d/e/f/g/h").mkdir(parents=True)
    os.rename(root / "a/b/c/d/0", root / "sources/0")
    assert (root / "sources" / up / "0").read_text() == "import os"  # so the link leads there
    with pytest.raises(CannotCopy, match="does not begin with a source's name"):
        snapshot(root.as_uri(), tmp_path / "home/checkpoints/copy")
    assert list(packages.iterdir()) == []
    assert [path.name for path in (tmp_path / "home/checkpoints").iterdir()] == ["delays"]


def test_a_link_that_is_put_into_a_copy_meanwhile_is_not_gone_through(
    tmp_path: Path, packages: Path
) -> None:
    draft = tmp_path / "draft"
    with Inside(draft) as copy:
        copy.write("offsets/0", "v1")
        (draft / "state").symlink_to(packages)
        (draft / "metadata").symlink_to(packages / "mine.pth")
        for name in ("state/mine.pth", "state/0/mine.pth", "../packages/mine.pth", "/mine"):
            with pytest.raises(NotPlain):
                copy.write(name, "import os")
        with pytest.raises(FileExistsError):
            copy.write("metadata", "import os")
        # A folder that was open already is the one that was meant.
        (draft / "offsets").rename(draft / "elsewhere")
        (draft / "offsets").symlink_to(packages)
        copy.write("offsets/1", "v1")
    assert list(packages.iterdir()) == []
    assert (draft / "elsewhere/1").read_text() == "v1"


def test_a_state_of_many_folders_is_copied_with_few_of_them_open(tmp_path: Path) -> None:
    root = write_checkpoint(tmp_path / "delays", batches=range(2), store="delta", partitions=300)
    most = [0]

    class Counted(Inside):
        def link(self, descriptor: int, name: str) -> None:
            most[0] = max(most[0], len(self._open))
            super().link(descriptor, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("queries.checkpoints.snapshot.Inside", Counted)
        copied = snapshot(root.as_uri(), tmp_path / "copy")
    assert len(list((tmp_path / "copy/state/0").iterdir())) == 301
    assert copied.files > 600
    assert most[0] <= MOST_OPEN + 4


def test_the_copy_of_a_sinks_log_holds_nothing_of_where_links_lead(
    tmp_path: Path, secret: Path
) -> None:
    out = tmp_path / "data/out"
    _entry(out, 0)
    (out / LOG / "1").symlink_to(secret)
    sink = FileSink(out)
    kept = sink.keep_log("operation")
    assert (out / LOG / "1").read_text() == SECRET  # so a plain copy would hold it
    assert [path.name for path in kept.iterdir()] == ["0"]


@pytest.mark.guarantee("G-ISOLATION-11")
@pytest.mark.parametrize("path", ["/../../secret_key", "/sub/../../../secret_key"])
def test_a_log_that_names_a_file_upwards_moves_it_nowhere(
    tmp_path: Path, secret: Path, path: str
) -> None:
    out = tmp_path / "data/out"
    (out / "sub").mkdir(parents=True)
    assert Path(f"{out}{path}").read_text() == SECRET
    _entry(out, 0)
    _entry(out, 1, f"{out}{path}")
    FileSink(out).put_back(0, "operation")
    _entry(out, 1, f"{out}{path}")
    FileSink(out).move_aside("another")
    assert secret.read_text() == SECRET


def test_a_folder_of_a_sink_that_is_a_link_gives_no_file_from_there(
    tmp_path: Path, secret: Path
) -> None:
    out = tmp_path / "data/out"
    _entry(out, 0)
    _entry(out, 1, f"{out}/day/secret_key", f"{out}/mine")
    (out / "mine").write_text("mine")
    (out / "day").symlink_to(tmp_path)
    FileSink(out).put_back(0, "operation")
    assert secret.read_text() == SECRET
    assert (out / "_headgate/operation/mine").read_text() == "mine"


@pytest.mark.parametrize("planted", ["_headgate", "_headgate/operation"])
def test_nothing_is_moved_aside_through_a_link(
    tmp_path: Path, packages: Path, planted: str
) -> None:
    out = tmp_path / "data/out"
    _entry(out, 0, f"{out}/mine.pth")
    (out / "mine.pth").write_text("import os")
    (out / planted).parent.mkdir(exist_ok=True)
    (out / planted).symlink_to(packages)
    with pytest.raises(NotPlain):
        FileSink(out).move_aside("operation")
    with pytest.raises(NotPlain):
        FileSink(out).put_back(-1, "operation")
    assert list(packages.iterdir()) == []
    assert (out / "mine.pth").exists()


def _checkpoint(tmp_path: Path) -> tuple[Path, DriverSpec, DriverFolder]:
    place = tmp_path / "checkpoints/_flights/delays"
    folder = DriverFolder.make(tmp_path / "drivers/flights/2")
    spec = replace(_spec(2), checkpoints=(place.as_uri(),), folders=(str(place.parent),))
    return place, spec, folder


@pytest.mark.parametrize("planted", ["delays", ".headgate", ".headgate/delays.held"])
def test_a_checkpoint_or_lock_that_is_a_link_starts_no_driver(
    tmp_path: Path, packages: Path, planted: str
) -> None:
    """The next driver would be shown, to write to, whatever the one before has made of it."""
    place, spec, folder = _checkpoint(tmp_path)
    link = place.parent / planted
    link.parent.mkdir(parents=True)
    link.symlink_to(packages)
    with pytest.raises(LaunchRefused, match="contains a link"):
        prepare(spec, folder)
    assert list(packages.iterdir()) == []
