"""Check commit messages: the one in a file, for git's commit-msg hook, or those since `SINCE`.

A subject is `component: verb what`, and a body gives the reason (CONTRIBUTING.md).
"""

import re
import subprocess
import sys
from pathlib import Path

from run import print_line

#: The committer's date since which messages are checked. Earlier ones were written by other rules.
SINCE = "2026-11-29T20:50:00+00:00"
#: Maximum length of a subject, in characters: `git log --oneline` shows it on one line.
LONGEST = 72
COMPONENT = re.compile(r"[a-z0-9][a-z0-9 _-]*: (?=\S)")
#: First verbs that fit every change, and so describe none.
EMPTY_VERBS = frozenset({"be", "give", "let", "name", "say", "tell"})
#: Lines of a body that give no reason.
TRAILER = re.compile(r"[A-Z][A-Za-z-]*-(by|with|for|id|to): ", re.IGNORECASE)
#: Messages that git writes, or that a rebase merges into others.
OF_GIT = ("Merge ", "fixup! ", "squash! ", "amend! ")
REPOSITORY = Path(__file__).resolve().parents[1]


def problems(message: str) -> list[str]:
    """Return the problems of a message."""
    subject, *rest = message.strip().split("\n")
    found = []
    if len(subject) > LONGEST:
        found.append(f"the subject has {len(subject)} characters; use at most {LONGEST}")
    component = COMPONENT.match(subject)
    if component is None:
        found.append('begin the subject with its component in lower case, such as "alerts: "')
    elif re.split(r"\W", subject[component.end() :], maxsplit=1)[0].lower() in EMPTY_VERBS:
        found.append(f"use a verb that describes the change: not {', '.join(sorted(EMPTY_VERBS))}")
    if ";" in subject:
        found.append('the subject contains ";": make one commit for each change')
    if rest and rest[0].strip():
        found.append("leave the second line empty")
    if not any(line.strip() and not TRAILER.match(line) for line in rest):
        found.append("give the reason in a body, after an empty line")
    return found


def without_comments(text: str) -> str:
    """Return the part that git keeps of the file saved by an editor."""
    text = re.split(r"^# -+ >8 -+$", text, maxsplit=1, flags=re.MULTILINE)[0]
    return "\n".join(line for line in text.split("\n") if not line.startswith("#"))


def in_file(path: Path) -> list[str]:
    """Return what is wrong with a message that is being committed."""
    message = without_comments(path.read_text())
    return [] if message.startswith(OF_GIT) else problems(message)


def since(repository: Path, date: str = SINCE) -> tuple[list[str], str]:
    """Return the problems of the commits since a date, and a sentence on the checked commits."""
    try:
        log = _git(repository, "log", "--no-merges", f"--since={date}", "--format=%h%n%B%x00")
        shallow = _git(repository, "rev-parse", "--is-shallow-repository").strip() == "true"
    except (OSError, subprocess.CalledProcessError) as error:
        return [], f"Commit messages are not checked: {error}."
    commits = [text.strip().partition("\n") for text in log.split("\0") if text.strip()]
    found = [
        f"{commit} {message.partition(chr(10))[0]}\n    {problem}"
        for commit, _, message in commits
        for problem in problems(message)
    ]
    note = ", in a shallow clone" if shallow else ""
    return found, f"{len(commits)} commit messages since {date} are checked{note}."


def _git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", repository, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def main(arguments: list[str]) -> int:
    """Print what is wrong; return 1 if anything is."""
    if arguments:
        found = in_file(Path(arguments[0]))
    else:
        found, checked = since(REPOSITORY)
        print_line(checked)
    for problem in found:
        print_line(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
