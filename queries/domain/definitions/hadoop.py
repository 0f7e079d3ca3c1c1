"""Hadoop configuration that a definition may set.

Hadoop's configuration determines what a path means: a key can mount one folder over another,
redirect a scheme to another file system, or cause a text to be decoded into Java objects. Nobody is
allowed to set such keys. Everyone is allowed to set the keys that tune a client or set its address
and account. All other keys are reserved for users who have the right to write Python
(`queries.domain.definitions.code`).
"""

import re

#: Spark configuration that becomes Hadoop's: `spark.hadoop.KEY`, and `hadoop.KEY` of a catalog
#: (Iceberg: SparkUtil.hadoopConfCatalogOverrides).
_CONF = re.compile(r"spark\.(?:hadoop|sql\.catalog\..+?\.hadoop)\.(.+)", re.IGNORECASE)
_CONF_OF_ANY_CATALOG = re.compile(r"spark\.sql\.catalog\..+\.hadoop\.(.+)", re.IGNORECASE)
#: File systems that a URL scheme may mean. A different class for a scheme would read outside the
#: scheme's data roots (Hadoop: core-default.xml, fs.SCHEME.impl).
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


def keys_of(conf: str) -> tuple[str, ...]:
    """Return the Hadoop keys that a Spark key can set; () if it sets none.

    A catalog's name may itself contain "hadoop", so there may be two.
    """
    matches = (pattern.fullmatch(conf) for pattern in (_CONF, _CONF_OF_ANY_CATALOG))
    return tuple(dict.fromkeys(match[1] for match in matches if match))


def refusal(key: str, value: str) -> tuple[str, str] | None:
    """Return why a Hadoop key is forbidden to everyone, and the remedy; None if it is not."""
    if _REDIRECTS.fullmatch(key):
        return "would redirect paths.", "Remove it, and use full URLs as paths."
    if match := _FILE_SYSTEM_KEY.fullmatch(key):
        usual = _FILE_SYSTEMS.get(match[2])
        if usual is None or match[1] or value.strip() != usual:
            way_out = f"Remove it, or write {usual}." if usual else "Remove it."
            return "would map a URL scheme to another file system.", way_out
    if _DECODED.fullmatch(key):
        return (
            "makes the driver deserialize objects from text, or read a password file.",
            "Remove it; use a secret reference in the key that needs it.",
        )
    return None


def is_file_system(key: str) -> bool:
    """Return whether a key specifies the class of a scheme's file system."""
    return _FILE_SYSTEM_KEY.fullmatch(key) is not None


def is_tuning(key: str) -> bool:
    """Return whether a key is known and specifies neither a file nor a program."""
    if is_file_system(key):
        return True  # its value is the only allowed one
    return _TUNING.fullmatch(key) is not None and _NAMES_A_FILE.fullmatch(key) is None


def is_foreign(option: str) -> bool:
    """Return whether an option of a connector's format would act as a Hadoop or Spark key."""
    return _FOREIGN.fullmatch(option) is not None
