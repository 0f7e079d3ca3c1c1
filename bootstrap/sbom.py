"""Write an installation's bill of materials with CycloneDX: wheels, jars and scripts.

    python bootstrap/sbom.py [FILE]

The wheels are those in requirements.txt, with their digests. Jars are PySpark's, those of other
installed Spark versions, and those of the connectors for each of them. A jar's coordinates are read
from the jar; a jar without coordinates is named after its file. Scripts are the packages of npm
from which the SQL editor is built, with the digests in its lockfile. No network is needed.
"""

import base64
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from itertools import chain
from os import environ
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL
from run import REPOSITORY, print_line

HOME = Path(environ.get("HEADGATE_HOME") or REPOSITORY / "var").resolve()
CONNECTORS = Path(environ.get("HEADGATE_CONNECTORS") or HOME / "connectors").resolve()
SPARKS = HOME / "sparks"
_VERSION = SchemaVersion.V1_6
_WHEEL = re.compile(r"^([\w.-]+?)(?:\[[\w,-]+\])?==(\S+)((?:.*\\\n)*.*)", re.MULTILINE)
_NAMED = re.compile(r"(.+?)-(\d[\w.\-+]*)")  # scala-library-2.13.18


def wheels(locked: str) -> Iterator[Component]:
    """Return the packages in a locked list."""
    for name, version, rest in _WHEEL.findall(locked):
        digests = sorted(set(re.findall(r"sha256:([0-9a-f]{64})", rest)))
        yield _component(PackageURL("pypi", None, name, version), digests)


def jars(folder: Path) -> Iterator[Component]:
    """Return the jars in a folder, at any depth."""
    for jar in sorted(folder.rglob("*.jar")):
        yield _component(_coordinates(jar), [sha256(jar.read_bytes()).hexdigest()])


def scripts(locked: str) -> Iterator[Component]:
    """Return the packages in a lockfile of npm, except those that only build."""
    for path, package in json.loads(locked)["packages"].items():
        if not path or package.get("dev"):
            continue
        group, _, name = path.removeprefix("node_modules/").rpartition("/")
        algorithm, _, digest = package["integrity"].partition("-")
        assert algorithm == "sha512", path
        yield _component(
            PackageURL("npm", group or None, name, package["version"]),
            [base64.b64decode(digest).hex()],
            HashAlgorithm.SHA_512,
        )


def _component(
    purl: PackageURL, digests: list[str], algorithm: HashAlgorithm = HashAlgorithm.SHA_256
) -> Component:
    return Component(
        name=purl.name,
        group=purl.namespace,
        version=purl.version,
        type=ComponentType.LIBRARY,
        purl=purl,
        bom_ref=f"{purl}#{digests[0]}",
        hashes=[HashType(alg=algorithm, content=digest) for digest in digests],
    )


def _coordinates(jar: Path) -> PackageURL:
    """Return the coordinates that Maven wrote into a jar, or otherwise its file name.

    A shaded jar also contains the coordinates of the jars that it includes.
    """
    with zipfile.ZipFile(jar) as archive:
        property_files = [name for name in archive.namelist() if name.endswith("/pom.properties")]
        texts = [archive.read(name).decode(errors="replace") for name in property_files]
    for text in texts:
        properties = dict(line.strip().split("=", 1) for line in text.splitlines() if "=" in line)
        if f"{properties.get('artifactId')}-{properties.get('version')}" == jar.stem:
            return PackageURL(
                "maven", properties["groupId"], properties["artifactId"], properties["version"]
            )
    match = _NAMED.fullmatch(jar.stem)
    name, version = (match[1], match[2]) if match else (jar.stem, None)
    return PackageURL("generic", None, name, version)


def bill() -> str:
    """Return the bill as JSON that conforms to its schema."""
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    components = [
        *wheels((REPOSITORY / "requirements.txt").read_text()),
        *scripts((REPOSITORY / "bootstrap" / "editor" / "package-lock.json").read_text()),
        *jars(Path(spark.origin).parent / "jars"),
        *chain.from_iterable(map(jars, sorted(SPARKS.glob("*/pyspark/jars")))),
        *jars(CONNECTORS),
    ]
    bom = Bom(components={component.bom_ref.value: component for component in components}.values())
    bom.metadata.component = Component(name="headgate", type=ComponentType.APPLICATION)
    bom.register_dependency(bom.metadata.component, bom.components)
    text = make_outputter(bom, OutputFormat.JSON, _VERSION).output_as_string(indent=2)
    if wrong := JsonStrictValidator(_VERSION).validate_str(text):
        sys.exit(f"the bill of materials is not valid: {wrong}")
    return text


if __name__ == "__main__":
    file = Path(sys.argv[1] if len(sys.argv) > 1 else HOME / "sbom.cdx.json")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(bill())
    print_line(f"The bill of materials is in {file}.")
