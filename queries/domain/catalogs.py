"""Catalogs that admins declare: Iceberg catalogs to which Spark connects.

Authors use a catalog by its name. Its address, its classes and its properties are the admin's, so
no definition can make a driver connect to another service or load a class.

Only REST catalogs can be declared: drivers cannot check what a Hive metastore or Glue returns.

Sources: Iceberg 1.11.0, CatalogProperties, CatalogUtil, OAuth2Properties, S3FileIOProperties,
AwsClientProperties and RESTSessionCatalog.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from headgate_ground.masking import MASK, is_reference
from queries.domain.errors import Problem

#: Where admins declare catalogs.
PAGE = "Settings → Catalogs"
#: Spark's prefix for the configuration of catalogs (`Catalogs.load`).
PREFIX = "spark.sql.catalog."
CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
HADOOP_IO = "org.apache.iceberg.hadoop.HadoopFileIO"
S3_IO = "org.apache.iceberg.aws.s3.S3FileIO"
#: The header that asks a REST catalog for credentials of its tables' storage.
DELEGATION = "header.X-Iceberg-Access-Delegation"


class CatalogType(StrEnum):
    """What Spark connects to."""

    REST = "rest"


class CatalogAuth(StrEnum):
    """What a REST catalog's secret is: the value is the name of Iceberg's property for it."""

    CREDENTIAL = "credential"  # OAuth2 client credential, "ID:SECRET" or "SECRET"
    TOKEN = "token"  # bearer token


@dataclass(frozen=True, slots=True)
class CatalogSpec:
    """A catalog as a driver gets it."""

    name: str
    type: CatalogType
    address: str  # URI
    warehouse: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)  # only `ALLOWED_PROPERTIES`
    secret: str = ""  # "env:NAME" or "file:NAME", never the value; "": no secret
    auth: CatalogAuth = CatalogAuth.CREDENTIAL  # what the secret is
    vended: bool = False  # the catalog may issue credentials for its tables' storage

    @property
    def uses_s3(self) -> bool:
        """Return whether tables are accessed with Iceberg's S3 client, not with Hadoop's."""
        return self.vended or any(key.startswith("s3.") for key in self.properties)


_FLAG = (r"true|false", "Write true or false.")
_COUNT = (r"0*[1-9]\d{0,8}", "Write a whole number, 1 or more.")
_MILLIS = (r"-1|\d{1,12}", "Write milliseconds as digits only.")
_WORDS = (r"[\w.:/@*+=, -]{1,500}", "Write letters, digits, spaces and . : / @ * + = , - _ only.")
#: An http address without a user and password, query or fragment.
_HTTP = (
    r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?(?:/[\w.~%+-]*)*",
    "Write https://HOST[:PORT][/PATH], without a user or password.",
)
_REGION = (r"[a-z]{2}(?:-[a-z]+){1,3}-\d{1,2}", "Write a region such as eu-central-1.")

#: Type -> property -> the pattern of its values, and how to write them. No property names a class,
#: a file or a secret.
ALLOWED_PROPERTIES: Mapping[CatalogType, Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        CatalogType.REST: {
            "prefix": (r"[\w.%/-]{1,200}", "Write letters, digits and . % / - _ only."),
            "scope": _WORDS,
            "audience": _WORDS,
            "resource": _WORDS,
            "oauth2-server-uri": _HTTP,
            "token-refresh-enabled": _FLAG,
            "token-exchange-enabled": _FLAG,
            "rest-page-size": _COUNT,
            "snapshot-loading-mode": (r"all|refs", "Write all or refs."),
            "rest-metrics-reporting-enabled": _FLAG,
            "rest.client.connection-timeout-ms": _COUNT,
            "rest.client.socket-timeout-ms": _COUNT,
            "client.region": _REGION,
            "s3.region": _REGION,
            "s3.endpoint": _HTTP,
            "s3.path-style-access": _FLAG,
            "s3.checksum-enabled": _FLAG,
            "default-namespace": (r"\w+(\.\w+)*", "Write names of letters, digits and _."),
            "cache-enabled": _FLAG,
            "cache.case-sensitive": _FLAG,
            "cache.expiration-interval-ms": _MILLIS,
            "io.manifest.cache-enabled": _FLAG,
            "io.manifest.cache.expiration-interval-ms": _MILLIS,
            "io.manifest.cache.max-total-bytes": _COUNT,
            "io.manifest.cache.max-content-length": _COUNT,
        },
    }
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,79}")
#: Names that Spark gives a meaning of its own.
_SPARKS_OWN = frozenset({"spark_catalog", "system", "session", "global_temp"})
_WAREHOUSE = re.compile(r"[^\s\x00-\x1f?#${}]{1,1000}")


def catalog_conf(spec: CatalogSpec) -> dict[str, str]:
    """Return the Spark configuration that declares a catalog, without its secret."""
    values = {
        **spec.properties,
        "type": spec.type.value,
        "uri": spec.address,
        "io-impl": S3_IO if spec.uses_s3 else HADOOP_IO,
    }
    if spec.warehouse:
        values["warehouse"] = spec.warehouse
    if spec.vended:
        values[DELEGATION] = "vended-credentials"
    prefix = f"{PREFIX}{spec.name}"
    return {prefix: CATALOG_CLASS} | {f"{prefix}.{key}": values[key] for key in sorted(values)}


def key_problems(conf: Mapping[str, str], names: Iterable[str]) -> list[Problem]:
    """Return a problem for each key of a definition that would change a declared catalog."""
    declared = set(names)
    message = "belongs to a catalog that an administrator has declared."
    return [
        Problem(f"conf.{key}", value[:200], message, "Remove it.")
        for key, value in conf.items()
        if key.startswith(PREFIX) and key.removeprefix(PREFIX).partition(".")[0] in declared
    ]


def marked(conf: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return a configuration in which these catalogs have a class, but no address or type."""
    return {**conf, **{f"{PREFIX}{name}": CATALOG_CLASS for name in names}}


def problems(spec: CatalogSpec) -> list[Problem]:
    """Return what is wrong with a catalog, by field."""
    return list(_problems(spec))


def _problems(spec: CatalogSpec) -> Iterator[Problem]:
    if not _NAME.fullmatch(spec.name) or spec.name.lower() in _SPARKS_OWN:
        way_out = f"Write letters, digits and _, and none of {', '.join(sorted(_SPARKS_OWN))}."
        yield Problem("name", spec.name[:200], "is not a valid name of a catalog.", way_out)
    yield from _value("address", spec.address, _HTTP)
    if spec.warehouse and (
        not _WAREHOUSE.fullmatch(spec.warehouse) or is_reference(spec.warehouse)
    ):
        way_out = "Write a URL such as s3a://bucket/lake, or the name that the catalog uses."
        yield Problem("warehouse", spec.warehouse[:200], "is not a valid warehouse.", way_out)
    allowed = ALLOWED_PROPERTIES[spec.type]
    for key, value in spec.properties.items():
        if key in allowed:
            yield from _value(f"properties.{key}", value, allowed[key])
        else:
            message = f"is not a property that a {spec.type} catalog can have here."
            yield Problem(f"properties.{key}", MASK, message, f"Choose {', '.join(allowed)}.")
    if spec.secret and not is_reference(spec.secret):
        way_out = "Write env:NAME or file:NAME; the value itself is never stored."
        yield Problem("secret", "", "is not a valid secret reference.", way_out)


def _value(at: str, value: str, rule: tuple[str, str]) -> Iterator[Problem]:
    pattern, way_out = rule
    # Iceberg replaces env:NAME with the driver's environment (EnvironmentUtil.resolveAll).
    if not re.fullmatch(pattern, value) or is_reference(value):
        yield Problem(at, "", "is missing." if not value else "is not valid.", way_out)
