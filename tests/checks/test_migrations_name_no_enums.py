"""Migrations contain values, not members of the program's enums, which may be renamed.

See docs/decisions/0029-upgrades-begin-with-0-1-0.md.
"""

import ast
from pathlib import Path

from listeners import migrations as listeners_migrations
from queries import migrations as queries_migrations

#: What migrations import of the program.
ALLOWED = {"queries.channels.kinds", "queries.domain.reasons"}


def _imported(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


def test_migrations_import_no_states_and_kinds_of_the_program() -> None:
    folders = [Path(each.__path__[0]) for each in (queries_migrations, listeners_migrations)]
    files = [file for folder in folders for file in sorted(folder.glob("0*.py"))]
    assert len(files) > 16
    own = {"queries", "listeners", "headgate_ground", "controlplane", "installation"}
    imported = {
        (file.name, name)
        for file in files
        for name in _imported(file)
        if name.split(".")[0] in own and name not in ALLOWED
    }
    assert imported == set()
