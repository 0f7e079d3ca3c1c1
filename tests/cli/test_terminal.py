"""Terminals get colours and one line that changes; anything else gets plain lines."""

import os
import pty
import subprocess
import time

from tests.cli.conftest import COMMAND, LIMIT_S, Shell
from tests.scenarios.stage import Stage


def in_a_terminal(shell: Shell, *arguments: str) -> str:
    """Return what a command writes to a terminal; the rest goes on once it has begun to."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        env=shell.environment() | {"TERM": "xterm"},
        cwd=shell.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    written, ends = b"", time.monotonic() + LIMIT_S
    while time.monotonic() < ends:
        ended = process.poll() is not None
        if shell.meanwhile and written:
            shell.meanwhile()
        try:
            written += os.read(ours, 65536)
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:  # the other end is closed
            break
        if ended:
            break
    os.close(ours)
    process.kill()
    process.wait()
    return written.decode()


def test_progress_is_one_line_in_a_terminal_and_plain_lines_elsewhere(
    shell: Shell, stage: Stage
) -> None:
    work, shell.meanwhile = shell.meanwhile, None
    assert work is not None
    for name in ("arrivals", "delays"):
        stage.query(name)
    shell("start", "arrivals")
    command = [*COMMAND, "wait", "arrivals", "--for", "running"]
    with subprocess.Popen(
        command,
        env=shell.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("arrivals: STOPPED")
        while process.poll() is None:
            work()
        out, err = process.communicate(timeout=LIMIT_S)
    assert out == "arrivals: RUNNING. Its first batch has committed.\n"
    assert "\x1b" not in err
    shell("start", "delays")
    shell.meanwhile = work
    shown = in_a_terminal(shell, "wait", "delays", "--for", "running")
    assert "\r\x1b[Kdelays: STOPPED" in shown
    assert "delays: RUNNING" in shown


def test_a_shell_completes_commands_and_kinds(shell: Shell) -> None:
    def completed(words: str, place: int) -> list[str]:
        shell.env |= {
            "_HEADGATE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(place),
        }
        return shell().out.split()

    assert completed("headgate st", 1) == ["start", "stop"]
    assert completed("headgate get quer", 2) == ["query", "queries"]
    shell.env |= {"_HEADGATE_COMPLETE": "source_bash"}
    assert "_HEADGATE_COMPLETE=complete_bash" in shell().out
