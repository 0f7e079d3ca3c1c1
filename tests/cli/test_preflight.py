"""`preflight`: the outcome of a trial as text and as exit code."""

from pathlib import Path

from queries.models.definitions import Checkpoint
from tests.cli.conftest import Shell
from tests.scenarios.stage import Stage
from tests.services.probes.test_preflight_operations import PASSED


def test_a_preflight_is_followed_to_its_outcome(shell: Shell, stage: Stage, tmp_path: Path) -> None:
    stage.query("delays")
    Checkpoint.objects.update(location=(tmp_path / "checkpoint").as_uri())
    work = shell.meanwhile

    def probing() -> None:
        assert work is not None
        work()
        if any(probe.exit is None for probe in stage.launcher.probes.values()):
            stage.launcher.answer(PASSED.dumps())

    shell.meanwhile = probing
    done = shell("preflight", "delays")
    assert done.out.startswith("delays: passed\n")
    assert "New data at the source: passed" in done.out
    assert "not tested: the checkpoint: no batch has committed" in done.out
    refused = shell("preflight", "delays", "--spark", "3.4", code=1).err
    assert "spark" in refused, "the server names the field"
    assert shell("preflight", "nobody", code=1).err.startswith("Error: Not found")
