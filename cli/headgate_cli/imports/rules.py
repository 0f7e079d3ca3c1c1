"""The server's rules for what a definition may set, as generated into `rules.json`.

`make docs-reference` writes the file from the server's own tables, and a test holds it equal,
so that an import without a server decides as a save would.
"""

import json
import re
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

#: "group:artifact" without the versions of Scala and Spark -> the connector that contains it.
_CONNECTORS = {
    "com.amazonaws:aws-java-sdk-bundle": "s3",
    "com.google.cloud.bigdataoss:gcs-connector": "gcs",
    "io.delta:delta-core": "delta",
    "io.delta:delta-spark": "delta",
    "io.delta:delta-storage": "delta",
    "org.apache.hadoop:hadoop-aws": "s3",
    "org.apache.hadoop:hadoop-azure": "azure",
    "org.apache.iceberg:iceberg-spark-runtime": "iceberg",
    "org.apache.kafka:kafka-clients": "kafka",
    "org.apache.spark:spark-avro": "avro",
    "org.apache.spark:spark-sql-kafka-0-10": "kafka",
    "org.apache.spark:spark-token-provider-kafka-0-10": "kafka",
    "org.postgresql:postgresql": "jdbc",
}


#: Names and texts that are secrets on a command line, in addition to the server's: short options
#: such as `-p`, users in an address without a password, webhooks.
_SHORT_NAME = re.compile(r"(?:^|[._-])auth$|^(?:p|pw|pass|creds?|credentials?)$", re.IGNORECASE)
_NO_SECRET = re.compile(r"\d{1,5}|true|false", re.IGNORECASE)
_ADDRESSES = (
    re.compile(r"(https?://)([^\s/@]+)(@)"),
    re.compile(r"(https://hooks\.slack\.com/services/|/api/webhooks/)(\S+)()"),
)


@dataclass(frozen=True)
class Rules:
    """The tables in `rules.json`."""

    allowed: str  # keys of Spark's configuration that an application may set
    reserved: list[list[str]]  # patterns of keys that it may not, with the way out
    class_name: str  # matches a JVM class in a value
    safe_classes: str
    secret_name: str
    secret_values: list[list[str]]  # pattern before the secret, of it, after it
    about_a_secret: str  # keys that describe a secret but do not contain it
    reserved_environment: str
    connector_settings: dict[str, str]  # setting that a connector makes itself -> connector
    sparks: list[str]  # "4.1", the oldest first

    @cached_property
    def _shapes(self) -> list[re.Pattern[str]]:
        by_name = rf"(?:{self.secret_name})[\w.\-]*[\"']?\s*[=:]\s*[\"']?"
        return [
            *(
                re.compile(f"({before})({secret})({after})")
                for before, secret, after in self.secret_values
            ),
            *_ADDRESSES,
            re.compile(rf"({by_name})(?!(?:env|file):|\$)([^\s\"',;&)}}]+)()", re.IGNORECASE),
        ]

    def masked(self, text: str) -> str:
        """Return a text with everything that looks like a secret masked."""
        for shape in self._shapes:
            text = shape.sub(r"\g<1>••••••\g<3>", text)
        return text

    def secrets_in(self, text: str) -> set[str]:
        """Return what looks like a secret in a text."""
        return {found[2] for shape in self._shapes for found in shape.finditer(text)}

    def is_secret(self, key: str, value: str) -> bool:
        """Return whether a value is a secret, by its key's name or by its shape."""
        if not value or re.fullmatch(r"(?:env|file):[A-Za-z0-9_.\-]+", value):
            return False
        return self.names_secret(key, value) or self.masked(value) != value

    def names_secret(self, key: str, value: str = "") -> bool:
        """Return whether a key's value is a secret, whatever it looks like."""
        if re.search(self.about_a_secret, key, re.IGNORECASE):
            return False
        if re.search(self.secret_name, key, re.IGNORECASE):
            return True
        return bool(_SHORT_NAME.search(key)) and not _NO_SECRET.fullmatch(value)

    def why_not(self, key: str, value: str) -> str:
        """Return why an application cannot set a key of Spark's configuration; "" if it can."""
        for pattern, way_out in self.reserved:
            if re.fullmatch(pattern, key):
                return way_out or "It is reserved for Headgate."
        if not re.fullmatch(self.allowed, key):
            return "This is not a setting that definitions can change."
        unknown = [
            name
            for name in re.findall(self.class_name, value)
            if not re.fullmatch(self.safe_classes, name)
        ]
        if unknown and not key.startswith("spark.sql.catalog."):
            return f"It loads {unknown[0]}. A connector provides the classes for its formats."
        return ""

    def connectors_of(self, key: str, value: str) -> list[str]:
        """Return the connectors that make a whole setting themselves; none if none do."""
        names = [self.connector_settings.get(f"{key}={part.strip()}") for part in value.split(",")]
        return sorted({name for name in names if name}) if all(names) else []

    def connector(self, coordinate: str) -> str:
        """Return the connector that replaces a Maven coordinate; "" if there is none."""
        group, _, rest = coordinate.partition(":")
        artifact = re.sub(r"(_\d\.\d)?_2\.1\d$|-hadoop\d$", "", rest.partition(":")[0])
        artifact = re.sub(r"-runtime-\d\.\d$", "-runtime", artifact)
        return _CONNECTORS.get(f"{group}:{artifact}", "")


def _read() -> Rules:
    tables: dict[str, Any] = json.loads(
        files("headgate_cli.imports").joinpath("rules.json").read_text("utf-8")
    )
    return Rules(**tables)


RULES = _read()
