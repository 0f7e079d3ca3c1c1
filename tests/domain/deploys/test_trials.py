"""What is tried before a deploy's first wave."""

import pytest

from queries.domain.deploys.request import UnchangedQuery, imports_differ, tried_beside

PYTHON = UnchangedQuery("python", "flights", is_python=True)
SECOND = UnchangedQuery("second", "flights", is_python=True)
SQL = UnchangedQuery("sql", "flights", is_python=False)
TABLE = UnchangedQuery("table", "flights", is_python=False)
ELSEWHERE = UnchangedQuery("elsewhere", "weather", is_python=True)


@pytest.mark.parametrize(
    ("beside", "tried", "found"),
    [
        ([SQL, SECOND, PYTHON], [], {"python", "second"}),
        ([PYTHON, SQL], ["flights"], {"python"}),
        ([TABLE, SQL], [], {"sql"}),  # one shows what the resolver says
        ([TABLE, SQL], ["flights"], set()),
        ([ELSEWHERE], [], set()),  # nothing that it imports changes
        ([], [], set()),
    ],
)
def test_queries_beside_the_changed_ones_are_tried(
    beside: list[UnchangedQuery], tried: list[str], found: set[str]
) -> None:
    assert tried_beside(beside, new_imports=["flights"], tried=tried) == found


@pytest.mark.parametrize(
    ("after", "differs"),
    [
        ({"code": {"upload": "sha256:a"}, "packages": "x"}, False),
        ({"code": {"upload": "sha256:b"}, "packages": "x"}, True),
        ({"code": {"upload": "sha256:a"}, "packages": "x==2"}, True),
        ({"code": {"upload": "sha256:a"}, "packages": "x", "python_path": ["/src"]}, True),
        ({"code": {"upload": "sha256:a"}, "packages": "x", "memory": "2g"}, False),
    ],
)
def test_new_code_and_new_packages_are_what_queries_import(
    after: dict[str, object], differs: bool
) -> None:
    assert imports_differ({"code": {"upload": "sha256:a"}, "packages": "x"}, after) is differs


def test_with_a_new_spark_every_query_of_the_application_is_tried() -> None:
    found = tried_beside(
        [PYTHON, SQL, TABLE, ELSEWHERE], new_imports=[], tried=[], new_sparks=["flights"]
    )
    assert found == {"python", "sql", "table"}
