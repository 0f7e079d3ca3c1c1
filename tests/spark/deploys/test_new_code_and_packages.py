"""New code and new packages are tried before a deploy changes anything."""

import gzip
import json
import urllib.request
from typing import Any

import pytest

from tests.faults.shared import wheels_of
from tests.faults.system import System
from tests.services.code.archives import packed
from tests.services.code.wheels import wheel

pytestmark = [pytest.mark.faults, pytest.mark.spark, pytest.mark.redis, pytest.mark.timeout(2400)]

GOOD = '''
import hgcolours


def define(spark, params):
    """Shade what comes."""
    rows = spark.readStream.format("rate").load()
    shaded = rows.selectExpr(f"'{hgcolours.SHADE}' AS shade", "value")
    return shaded.writeStream.format("noop")
'''
WRONG = GOOD.replace("import hgcolours", "import hgcolours\nimport hgnobody")


@pytest.fixture
def system(shared_system: System) -> System:
    """Return the shared system, with an index of two wheels."""
    for version, shade in (("1.0", "dark"), ("2.0", "light")):
        wheel(
            wheels_of(shared_system), "hgcolours", version, {"hgcolours.py": f"SHADE = {shade!r}\n"}
        )
    return shared_system


def uploaded(system: System, source: str) -> str:
    """Upload code; return its digest."""
    request = urllib.request.Request(
        f"{system.base}/api/v1/code/",
        method="POST",
        data=gzip.compress(packed({"shades.py": source})),
        headers={"Authorization": f"Token {system.token}", "Content-Type": "application/gzip"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.loads(answer.read())["digest"])


def deployed(system: System, code: str, packages: str, **how: Any) -> dict[str, Any]:
    """Deploy the application with this code and these packages; return the ended report."""
    head = {"apiVersion": "headgate/v1"}
    application = {
        "memory": "512m",
        "master": "local[2]",
        "code": {"upload": code},
        "packages": packages,
    }
    trigger = {"kind": "processing_time", "interval": "1 second"}
    query = {"kind": "python", "function": "shades:define", "trigger": trigger}
    about = {"name": "shades", "application": "colours"}
    files = [
        {
            **head,
            "kind": "Application",
            "metadata": {"name": "colours"},
            "spec": application,
        },
        {**head, "kind": "Query", "metadata": about, "spec": query, "desired": "RUNNING"},
    ]
    body = {
        "owner": "colours",
        "manifests": [
            {"path": f"{number}.yaml", "manifest": one} for number, one in enumerate(files)
        ],
    }
    return system.deployed({"apply": body, **how})


def test_a_bad_import_and_a_resolvers_no_end_a_deploy_before_anything_was_changed(
    system: System,
) -> None:
    good, wrong = uploaded(system, GOOD), uploaded(system, WRONG)
    first = deployed(system, good, "hgcolours==1.0", good={"batches": 1})
    assert first["state"] == "SUCCEEDED", first
    before = system.get("applications/colours/"), system.query("shades")["current_run"]

    imports = deployed(system, wrong, "hgcolours==1.0", preflight=True)
    assert imports["state"] == "FAILED", imports
    assert "No module named 'hgnobody'" in imports["reason"]

    resolver = deployed(system, good, "hgcolours==9.9", preflight=True)
    assert resolver["state"] == "FAILED", resolver
    assert "uv says" in resolver["reason"]
    assert "there is no version of hgcolours==9.9" in resolver["reason"]

    after = system.get("applications/colours/"), system.query("shades")["current_run"]
    assert [one["revision"] for one in (before[0], after[0])] == [1, 1]
    assert before[0]["driver"]["epoch"] == after[0]["driver"]["epoch"], "what runs was left alone"
    assert before[1] == after[1]

    done = deployed(system, good, "hgcolours==2.0", preflight=True, good={"batches": 1})
    assert done["state"] == "SUCCEEDED", done
    [wave] = done["waves"]
    assert [one["name"] for one in wave["queries"]] == ["shades"]
    assert system.get("applications/colours/")["running_revision"] == 2
