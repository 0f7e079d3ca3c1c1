"""The recipes of connectors: what they name is what their poms name, for each version of Spark."""

import re
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from queries.domain.definitions.declarations import FILE, Declared, read
from queries.domain.sparks import OURS, SPARKS, spark_named
from tests.pieces import connector_jars

REPOSITORY = Path(__file__).resolve().parents[2]
RECIPES = sorted(path.parent for path in (REPOSITORY / "connectors").glob(f"*/{FILE}"))
_POM = "{http://maven.apache.org/POM/4.0.0}"
#: A class of each connector, by name and by version of Spark where that differs.
CLASSES = {
    ("azure", ""): "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
    ("gcs", ""): "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem",
    ("gcs", "3.5"): "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    ("gcs", "4.0"): "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    ("gcs", "4.1"): "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    ("jdbc", ""): "org.postgresql.Driver",
    ("kafka", ""): "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    ("avro", ""): "org.apache.spark.sql.v2.avro.AvroDataSourceV2",
    ("s3", ""): "org.apache.hadoop.fs.s3a.S3AFileSystem",
}


def _declared(recipe: Path) -> Declared:
    return read((recipe / FILE).read_text())


def _coordinates(recipe: Path, given: dict[str, str]) -> list[str]:
    """Return the coordinates in a recipe's pom, with these properties."""
    pom = ElementTree.parse(recipe / "pom.xml").getroot()
    known = {
        one.tag.removeprefix(_POM): one.text or "" for one in pom.iterfind(f"{_POM}properties/*")
    } | given
    found = []
    profile = f"{_POM}profiles/{_POM}profile/" if "without.kernel" not in given else "none/"
    dependencies = [
        *pom.iterfind(f"{_POM}dependencies/{_POM}dependency"),
        *pom.iterfind(f"{profile}{_POM}dependencies/{_POM}dependency"),
    ]
    for one in dependencies:
        parts = [one.findtext(f"{_POM}{name}", "") for name in ("groupId", "artifactId", "version")]
        found.append(":".join(parts))
    return [re.sub(r"\$\{([\w.]+)\}", lambda name: known[name[1]], text) for text in found]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)
def test_a_recipe_names_versions_that_there_are_and_resolves_every_property(recipe: Path) -> None:
    declared = _declared(recipe)
    assert declared.about
    assert set(declared.versions) <= set(SPARKS) - {OURS}
    assert declared.versions or declared.packages
    for given in ({}, *declared.versions.values()):
        for one in _coordinates(recipe, given):
            assert re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", one)


@pytest.mark.parametrize(
    "recipe", [one for one in RECIPES if _declared(one).packages], ids=lambda recipe: recipe.name
)
def test_the_packages_of_a_recipe_are_those_of_its_pom(recipe: Path) -> None:
    assert sorted(_declared(recipe).packages) == sorted(_coordinates(recipe, {}))


@pytest.mark.parametrize(("name", "spark"), CLASSES, ids="-".join)
def test_an_installed_connector_contains_the_class_that_spark_or_hadoop_loads(
    name: str, spark: str
) -> None:
    jars = connector_jars(name, spark_named(spark) or OURS)
    if not jars:
        pytest.skip(f"the connector {name} is missing; get it with `make connector ARGS={name}`")
    file = CLASSES[name, spark].replace(".", "/") + ".class"
    assert any(file in zipfile.ZipFile(jar).namelist() for jar in jars)
