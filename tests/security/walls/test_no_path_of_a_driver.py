"""The audit hook that watches every other test sees what it must see."""

from pathlib import Path

import pytest

from tests import conftest_untrusted


def heard(monkeypatch: pytest.MonkeyPatch, event: str, *arguments: object) -> list[str]:
    """Return what the hook finds in a call that the worker's code makes."""
    found: list[str] = []
    place = f"{conftest_untrusted.ROOT}/queries/launchers/process/launcher.py"
    given = {"hear": conftest_untrusted._hear, "event": event, "arguments": arguments}
    with monkeypatch.context() as patched:
        patched.setattr(conftest_untrusted, "_found", found)
        exec(compile("hear(event, arguments)", place, "exec"), given)
    return found


OWN = "/home/drivers/app/3/own"


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("open", (f"{OWN}/status.json", "r", 0)),
        ("open", (f"{OWN}/status.json".encode(), "r", 0)),
        ("os.rename", ("/home/x", f"{OWN}/tmp/x", -1, -1)),
        ("os.utime", (Path(f"{OWN}/storage.sock"), None, None, -1)),
        ("shutil.rmtree", (f"{OWN}/tmp", None)),
        ("socket.connect", (None, f"{OWN}/storage.sock")),
        ("os.listdir", ("/home/checkpoints/_app/q/offsets/0",)),
        ("os.mkdir", ("/data/out/_headgate", 0o777, -1)),
    ],
)
def test_a_call_by_a_path_is_heard(
    monkeypatch: pytest.MonkeyPatch, event: str, arguments: tuple[object, ...]
) -> None:
    assert len(heard(monkeypatch, event, *arguments)) == 1


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("open", ("status.json", None, 0)),  # relative to a descriptor
        ("open", ("/home/drivers/app/3/control/spec.json", "r", 0)),
        ("socket.connect", (None, "/proc/self/fd/7")),
        ("os.listdir", (5,)),
        ("open", ("/home/mirrors/1/checkpoint/offsets/0", "r", 0)),
    ],
)
def test_what_is_ours_or_relative_to_an_open_folder_is_not(
    monkeypatch: pytest.MonkeyPatch, event: str, arguments: tuple[object, ...]
) -> None:
    assert heard(monkeypatch, event, *arguments) == []


def test_the_tests_may_lay_out_what_a_driver_could(tmp_path: Path) -> None:
    own = tmp_path / "3/own"
    own.mkdir(parents=True)
    (own / "status.json").write_text("{}")
    assert conftest_untrusted._found == []
