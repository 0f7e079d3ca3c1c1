"""Declarations other than queries: catalogs, Hadoop configuration, a connector's own description.

Spark connects to a catalog of another type (REST, Hive, JDBC, Glue, Nessie, …) when the query
starts, so its address is the admin's (`queries.domain.catalogs`). A definition can declare only
Iceberg's Hadoop catalogs, whose warehouse is a folder in the allowed paths, and set only properties
that contain neither an address nor a class. A connector may declare others (`connector.toml`).

Sources: Iceberg's CatalogUtil and CatalogProperties (`type`, `catalog-impl`, `uri`); their names
ignore case, because Spark passes them as a CaseInsensitiveStringMap, but the catalog's name does
not. Spark uses that name as a regular expression to find a catalog's keys (Catalogs.load), so
another character than those below could match the keys of other catalogs.

Hadoop's configuration determines the meaning of a path: a key can mount one folder over another,
redirect a scheme to another file system, or cause a text to be decoded into Java objects. Nobody is
allowed to set such keys. Everyone is allowed to set the keys that tune a client or set its address
and account. All other keys are reserved for users who have permission to write Python
(`queries.domain.definitions.code`).

The file is stored next to the connector's jars by whoever runs the host. Definitions may use the
formats that it lists in the same way as Spark's own.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from queries.domain.catalogs import PAGE, PREFIX
from queries.domain.errors import Problem

#: The only type whose tables are folders that Headgate can check.
HADOOP = "hadoop"
#: Iceberg's catalogs, which connect to a Hive metastore if they have no type.
_ICEBERG = re.compile(r"org\.apache\.iceberg\.spark\.Spark(Session)?Catalog")
_CLASS = re.compile(rf"{_ICEBERG.pattern}|org\.apache\.spark\.sql\.delta\.catalog\.DeltaCatalog")
_KEY = re.compile(
    r"spark\.sql\.catalog\.(?P<name>[^.]*)(?:\.(?P<property>.*))?", re.IGNORECASE | re.DOTALL
)
_NAME = re.compile(r"[A-Za-z0-9_-]+")
#: The properties of a Hadoop catalog that definitions can set.
_PROPERTY = re.compile(
    r"warehouse|default-namespace|defaultDatabase|use-nullable-query-schema|cache-enabled|cache\..+"
    r"|io\.manifest\.cache[.-].+|table-(default|override)\.(?!.*impl).+|hadoop\..+",
    re.IGNORECASE,
)
_OF_SERVICES = re.compile(r"type|catalog-impl|uri", re.IGNORECASE)
_WHY = (
    "would connect to a catalog service. Only Iceberg's Hadoop catalogs, which are folders, can be "
    "declared here."
)


def catalog_service_problem(key: str, value: str) -> Problem | None:
    """Return why a setting of a catalog is rejected; None if it cannot lead to a service."""
    match = _KEY.fullmatch(key)
    if match is None:
        return None
    name, part = match["name"], match["property"]
    if not _NAME.fullmatch(name):
        why, way_out = "has no valid name of a catalog.", "Use letters, digits, _ and - only."
    elif part is None:
        if _CLASS.fullmatch(value):
            return None
        why, way_out = "is not a catalog that definitions can declare.", _way_out(name)
    elif _PROPERTY.fullmatch(part) or (part.lower() == "type" and value.lower() == HADOOP):
        return None
    elif _OF_SERVICES.fullmatch(part):
        why, way_out = _WHY, _way_out(name)
    else:
        why = "is not a property of a catalog that definitions can set."
        way_out = f"Remove it, or ask an administrator to declare the catalog: {PAGE}."
    return Problem(f"conf.{key}"[:200], value[:200], why, way_out)


def untyped(conf: Mapping[str, str], whole: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each Iceberg catalog that `conf` declares and that has no type.

    `whole` is the configuration in effect: the declaration and the type can be in different parts
    of it.
    """
    typed = {key.removesuffix(end) for key in whole if (end := key[-5:]).lower() == ".type"}
    return [
        Problem(f"conf.{key}", value, f"has no type: it {_WHY}", _way_out(key.removeprefix(PREFIX)))
        for key, value in conf.items()
        if key.startswith(PREFIX) and _ICEBERG.fullmatch(value) and key not in typed
    ]


def _way_out(name: str) -> str:
    return (
        f"Set {PREFIX}{name}.type=hadoop and {PREFIX}{name}.warehouse=FOLDER, or ask an "
        f"administrator to declare the catalog ({PAGE}) and write its name in catalogs."
    )


#: Spark configuration that becomes Hadoop's: `spark.hadoop.KEY`, and `hadoop.KEY` of a catalog
#: (Iceberg: SparkUtil.hadoopConfCatalogOverrides).
_CONF = re.compile(r"spark\.(?:hadoop|sql\.catalog\..+?\.hadoop)\.(.+)", re.IGNORECASE)
_CONF_OF_ANY_CATALOG = re.compile(r"spark\.sql\.catalog\..+\.hadoop\.(.+)", re.IGNORECASE)
#: File systems that a URL scheme may mean. A different class for a scheme would read outside the
#: scheme's allowed paths (Hadoop: core-default.xml, fs.SCHEME.impl).
_FILE_SYSTEMS = {
    "s3a": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "hdfs": "org.apache.hadoop.hdfs.DistributedFileSystem",
    "abfs": "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
    "abfss": "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",
    "gs": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
}
_FILE_SYSTEM_KEY = re.compile(r"fs\.(AbstractFileSystem\.)?(.+)\.impl", re.IGNORECASE)
#: Keys that change what a path without a scheme means, or what is below a path (ViewFs).
_REDIRECTS = re.compile(
    r"fs\.(defaultFS|default\.name|viewfs\..*|.+\.impl\.disable\.cache)|hadoop\.tmp\.dir",
    re.IGNORECASE,
)
#: Addresses of a Hive metastore or of its database, and properties of Iceberg's other catalogs.
_OF_CATALOGS = re.compile(r"((hive\.)?metastore|iceberg|javax\.jdo|datanucleus)\..+", re.IGNORECASE)
#: Texts that Parquet and ORC decode into Java objects, and password files.
_DECODED = re.compile(
    r"parquet\.private\..+|.*kryo\.sarg|sarg\.pushdown|.*security\.credential\.provider\.path"
    r"|hadoop\.security\.credstore\..+",
    re.IGNORECASE,
)
#: Tuning of clients and formats, addresses and credentials. Not `fs.client.resolve.*`: with it,
#: Hadoop runs the program that maps hosts to racks (FileContext, NetworkTopology).
_TUNING = re.compile(
    r"fs\.(s3a|azure|abfs|abfss|gs|client(?!\.resolve\.)|hdfs)\..+|google\.cloud\..+|dfs\..+|ipc\..+"
    r"|io\.(file\.buffer\.size|bytes\.per\.checksum|map\.index\.\w+|compression\.codec\..+)"
    r"|mapreduce\.(fileoutputcommitter|input|output|outputcommitter)\..+"
    r"|hadoop\.(security\.(authentication|authorization)|rpc\.protection|kerberos\.min\..+)"
    r"|parquet\.(compression(\.level)?|block\.size|page\.[\w.-]+|dictionary\.[\w.]+"
    r"|enable\.(dictionary|summary-metadata)|bloom\.filter\.[\w.]+|writer\.version"
    r"|statistics\.[\w.]+|columnindex\.[\w.]+|filter\.[\w.]+|avro\.[\w.-]+|summary\.metadata\.level"
    r"|read\.(allocation\.size|async\.[\w.]+)|memory\.pool\.[\w.]+)(#.+)?"
    r"|orc\.(compress(\.size)?|stripe\.[\w.]+|block\.[\w.]+|bloom\.filter\.[\w.]+|dictionary\.[\w.]+"
    r"|column\.encoding\.direct|create\.index|row\.index\.stride|rows\.between\.memory\.checks"
    r"|compression\.[\w.]+|write\.(format|variable\.length\.blocks)|memory\.pool)",
    re.IGNORECASE,
)
#: A key of those above containing a word for a file or program; "path.style.access" does not.
_NAMES_A_FILE = re.compile(
    r"(?!.*\.path\.style\.)(.*\.)?[\w-]*(path|file|dir|folder|location|keytab|keystore|truststore"
    r"|script|command|cmd|shell|exec|profile)(\..*)?",
    re.IGNORECASE,
)
#: Options of a connector's reader or writer that would become Hadoop or Spark keys.
_FOREIGN = re.compile(
    r"(fs|hadoop|dfs|viewfs|mapred|mapreduce|io|ipc|rpc|ha|net|file|parquet|orc|hive|spark|yarn"
    r"|security|ssl)\..+|paths",
    re.IGNORECASE,
)


def hadoop_keys_of(conf: str) -> tuple[str, ...]:
    """Return the Hadoop keys that a Spark key can set; () if it sets none.

    A catalog's name may itself contain "hadoop", so there may be two.
    """
    matches = (pattern.fullmatch(conf) for pattern in (_CONF, _CONF_OF_ANY_CATALOG))
    return tuple(dict.fromkeys(match[1] for match in matches if match))


def hadoop_refusal(key: str, value: str) -> tuple[str, str] | None:
    """Return why a Hadoop key is forbidden for everyone, and the remedy; None if it is allowed."""
    if _REDIRECTS.fullmatch(key):
        return "would redirect paths.", "Remove it, and use full URLs as paths."
    if match := _FILE_SYSTEM_KEY.fullmatch(key):
        usual = _FILE_SYSTEMS.get(match[2])
        if usual is None or match[1] or value.strip() != usual:
            way_out = f"Remove it, or write {usual}." if usual else "Remove it."
            return "would map a URL scheme to another file system.", way_out
    if _OF_CATALOGS.fullmatch(key):
        way_out = f"Remove it, or ask an administrator to declare the catalog: {PAGE}."
        return "belongs to a catalog service.", way_out
    if _DECODED.fullmatch(key):
        return (
            "makes the driver deserialize objects from text, or read a password file.",
            "Remove it; use a secret reference in the key that needs it.",
        )
    return None


def is_file_system(key: str) -> bool:
    """Return whether a key specifies the class of a scheme's file system."""
    return _FILE_SYSTEM_KEY.fullmatch(key) is not None


def is_hadoop_tuning(key: str) -> bool:
    """Return whether a key is known and specifies neither a file nor a program."""
    if is_file_system(key):
        return True  # its value is the only allowed one
    return _TUNING.fullmatch(key) is not None and _NAMES_A_FILE.fullmatch(key) is None


def is_foreign_to_hadoop(option: str) -> bool:
    """Return whether an option of a connector's format would act as a Hadoop or Spark key."""
    return _FOREIGN.fullmatch(option) is not None


FILE = "connector.toml"
_EXTENSIONS = "spark.sql.extensions"


class Declared(BaseModel):
    """A connector as described by its own file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    about: str = ""
    sources: tuple[str, ...] = ()  # formats of spark.readStream
    tables: tuple[str, ...] = ()  # formats of spark.read
    sinks: tuple[str, ...] = ()  # formats of writeStream
    options: dict[str, tuple[str, ...]] = Field(default_factory=dict)  # by format
    extensions: tuple[str, ...] = ()  # classes for spark.sql.extensions
    catalogs: dict[str, str] = Field(default_factory=dict)  # name -> class
    conf: dict[str, str] = Field(default_factory=dict)  # defaults that an application can change
    # Maven coordinates of its jars; a recipe without them is only for other versions of Spark.
    packages: tuple[str, ...] = ()
    tested_with: tuple[str, ...] = ()  # versions of Spark: "4.3"
    # Of a recipe: Maven properties for other versions of Spark than Headgate's own, by version.
    versions: dict[str, dict[str, str]] = Field(default_factory=dict)

    def tested(self, spark: str) -> bool:
        """Return whether it was tested with a Spark version; "4.3" means any 4.3.x."""
        return any(
            spark == version or spark.startswith(f"{version}.") for version in self.tested_with
        )


class NotDeclared(Exception):
    """A `connector.toml` cannot be read; the message says why."""


def read(text: str) -> Declared:
    """Parse a `connector.toml`; raise `NotDeclared` if it is malformed."""
    try:
        return Declared.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise NotDeclared(f"{FILE} is not TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise NotDeclared(f"{FILE}: {where}: {first['msg']}.") from error


def conf_of(connectors: Iterable[Declared]) -> dict[str, str]:
    """Return the Spark configuration of the connectors: extensions, catalogs and defaults."""
    conf: dict[str, str] = {}
    extensions: list[str] = []
    for connector in connectors:
        extensions += [name for name in connector.extensions if name not in extensions]
        conf |= connector.conf
        conf |= {f"spark.sql.catalog.{name}": kind for name, kind in connector.catalogs.items()}
    return {**conf, _EXTENSIONS: ",".join(extensions)} if extensions else conf


def formats_of(connectors: Mapping[str, Declared], kind: str) -> dict[str, str]:
    """Map format -> connector for one kind ("sources", "tables", "sinks"); the first wins."""
    owners: dict[str, str] = {}
    for name, connector in sorted(connectors.items()):
        for name_of_format in getattr(connector, kind):
            owners.setdefault(name_of_format, name)
    return owners
