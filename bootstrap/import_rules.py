"""Write the rules by which `headgate import` decides, from the server's own tables.

    python bootstrap/import_rules.py

The command has no server to ask and does not contain the server's code; a test holds the file
equal to these tables.
"""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
FILE = REPOSITORY / "cli" / "headgate_cli" / "imports" / "rules.json"


def rules() -> dict[str, Any]:
    """Return the tables, as `headgate_cli.imports.rules.Rules` reads them."""
    from headgate_ground.secret_kinds import NAME, VALUES
    from queries.domain.definitions import configuration
    from queries.domain.sparks import SPARKS

    return {
        "allowed": configuration.APPLICATION_KEYS.pattern,
        "reserved": [list(row) for row in configuration.RESERVED_KEYS],
        "class_name": configuration.CLASS_NAME.pattern,
        "safe_classes": configuration.SAFE_CLASSES.pattern,
        "secret_name": NAME,
        "secret_values": [[kind.before, kind.pattern, kind.after] for kind in VALUES],
        "about_a_secret": configuration.ABOUT_A_SECRET.pattern,
        "reserved_environment": configuration.RESERVED_ENVIRONMENT.pattern,
        "connector_settings": _connector_settings(),
        "sparks": list(SPARKS),
    }


def _connector_settings() -> dict[str, str]:
    """Return each extension and catalog that a connector sets itself, with the connector."""
    settings = {}
    for path in sorted(REPOSITORY.glob("connectors/*/connector.toml")):
        declared = tomllib.loads(path.read_text("utf-8"))
        for extension in declared.get("extensions", ()):
            settings[f"spark.sql.extensions={extension}"] = path.parent.name
        for name, class_name in declared.get("catalogs", {}).items():
            settings[f"spark.sql.catalog.{name}={class_name}"] = path.parent.name
    return settings


def text() -> str:
    """Return the file's text."""
    return json.dumps(rules(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(REPOSITORY))
    FILE.write_text(text(), "utf-8")
