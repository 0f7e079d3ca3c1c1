"""The Spark configuration, environment and pools that a definition may set, and the analyzer's
share.

Headgate launches, monitors and stops the driver through its configuration, so a key that loads
classes, moves directories or changes what Headgate itself sets would break supervision. Keys that
tune a query are allowed.

The analyzer runs on a worker's host before the query is started, so it gets only settings that
change names, types or state, and only values that cannot be a class, a file or an address. The
names are those of `SQLConf` in Spark 4.0 to 4.3.
"""

import re
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from headgate_ground.masking import MASK, is_path_to_secret, is_reference, is_secret_name, mask_text
from headgate_ground.tolerant import whole
from queries.domain.definitions import declarations, kubernetes
from queries.domain.definitions.spec import PoolSpec
from queries.domain.errors import Problem
from queries.domain.readings import counted


def fairscheduler_xml(pools: Sequence[PoolSpec]) -> str:
    """Return the content of `spark.scheduler.allocation.file`, pools sorted by name."""
    entries = "".join(
        f"  <pool name={quoteattr(pool.name)}>\n"
        f"    <schedulingMode>{escape(pool.mode)}</schedulingMode>\n"
        f"    <weight>{pool.weight}</weight>\n"
        f"    <minShare>{pool.min_share}</minShare>\n"
        "  </pool>\n"
        for pool in sorted(pools, key=lambda pool: pool.name)
    )
    return f'<?xml version="1.0"?>\n<allocations>\n{entries}</allocations>\n'


def advice(
    pools: Sequence[PoolSpec],
    *,
    cores: int | None,
    queries: Mapping[str, Sequence[str]],
    scheduler_mode: str,
) -> list[str]:
    """Return actionable advice on an application's pools, as sentences.

    `cores` is None if the master does not specify them; `queries` maps a pool's name to its
    queries. Spark breaks ties between pools by name. With more busy pools than cores, the pool
    whose name sorts last therefore starves; `minShare` protects a lightly loaded one.
    """
    if scheduler_mode != "FAIR":
        return ["The scheduler mode is FIFO, so pools have no effect."] if pools else []
    busy = sorted(pool.name for pool in pools if queries.get(pool.name))
    sentences = []
    unprotected = [pool for pool in pools if pool.name in busy and pool.min_share == 0]
    if cores is not None and len(busy) > cores and unprotected:
        last = max(pool.name for pool in unprotected)
        sentences.append(
            f"{len(busy)} pools share {counted(cores, 'core')}. Spark breaks ties by name, so "
            f"{last} comes last and can starve. Give it a minimum share of 1, or put heavy "
            "queries into one pool."
        )
    reserved = sum(pool.min_share for pool in pools if pool.name in busy)
    if cores is not None and reserved > cores:
        sentences.append(
            f"The minimum shares add up to {reserved}, more than the {counted(cores, 'core')} "
            "available, so none is guaranteed."
        )
    sentences += [
        f"Pool {pool.name} is FIFO and has {len(members)} queries: tasks of the first query run "
        "before all others."
        for pool in sorted(pools, key=lambda pool: pool.name)
        if pool.mode == "FIFO" and len(members := queries.get(pool.name, ())) > 1
    ]
    return sentences


def cores_of(master: str) -> int | None:
    """Return how many cores a master URL gives a driver; None if it does not specify them."""
    inside = master.removeprefix("local").strip("[]").split(",")[0].strip()
    if not master.startswith("local"):
        return None
    return whole(inside) if inside else 1


#: Spark configuration that an application may set: regular expressions for whole names.
APPLICATION_KEYS = re.compile(
    "|".join(
        (
            r"spark\.sql\..+",
            r"spark\.hadoop\..+",
            r"spark\.kafka\..+",
            r"spark\.databricks\.delta\..+",
            r"spark\.scheduler\.listenerbus\.eventqueue\."
            r"(capacity|(streams|shared|appStatus|eventLog|executorManagement)\.capacity)",
            r"spark\.scheduler\.(minRegisteredResourcesRatio|maxRegisteredResourcesWaitingTime)",
            r"spark\.default\.parallelism",
            r"spark\.cores\.max",
            r"spark\.yarn\.(queue|tags|priority|maxAppAttempts|am\.(memory|cores))",
            kubernetes.OF_AUTHORS,
            kubernetes.OF_ADMINS,
            r"spark\.driver\.(maxResultSize|memoryOverhead|memoryOverheadFactor|cores)",
            r"spark\.executor\.(cores|memory|memoryOverhead|memoryOverheadFactor|instances"
            r"|heartbeatInterval|pyspark\.memory|maxNumFailures|failuresValidityInterval)",
            r"spark\.(dynamicAllocation|network|rpc|locality|speculation|excludeOnFailure|reducer"
            r"|memory|broadcast|cleaner|stage|storage|rdd|buffer|io\.compression)(\..+)?",
            r"spark\.shuffle\.(?!manager$|sort\.io\.plugin|service\.).+",
            r"spark\.task\.(cpus|maxFailures|reaper\..+)",
            r"spark\.python\.(worker|profile|authenticate|task)\..+",
            r"spark\.serializer",
            r"spark\.kryoserializer\.buffer(\.max)?",
            r"spark\.log\.level",
            r"spark\.eventLog\.(enabled|dir|compress|rolling\..+)",
            r"spark\.metrics\.namespace",
            r"spark\.ui\.(retained\w+|dagGraph\.\w+|timeline\..+)",
            r"spark\.checkpoint\.compress",
            r"spark\.files\.(maxPartitionBytes|openCostInBytes|ignore\w+Files)",
        )
    )
)
#: Exceptions to the list above: keys that load classes, and keys that Headgate sets itself.
RESERVED_KEYS: tuple[tuple[str, str], ...] = (
    (r"spark\.master", "Set the application's master."),
    (r"spark\.driver\.memory", "Set the application's memory."),
    (r"spark\.app\.name|spark\.app\.id", "Spark shows the application's name."),
    (
        r"spark\.scheduler\.(mode|allocation\.file|pool)",
        "Use the scheduler mode and pools instead.",
    ),
    (r"spark\.jars(\..+)?|spark\.files|spark\.archives", "Use a connector instead."),
    (r"spark\.submit\.pyFiles", "Set the application's code folders (python_path)."),
    (r"spark\.(driver|executor)\.extra\w+|spark\.\w+\.defaultJavaOptions", ""),
    (r"spark\.plugins(\..+)?|spark\.extraListeners", "Set the application's listeners."),
    (r"spark\.sql\.(extensions(\..+)?|queryExecutionListeners|cache\.serializer)", ""),
    (r"spark\.sql\.streaming\.streamingQueryListeners", "Set the application's listeners."),
    (r"spark\.sql\.streaming\.checkpointLocation", "Set the query's checkpoint."),
    (
        r"spark\.sql\.streaming\.(stopTimeout|stopActiveRunOnRestart|numRecentProgressUpdates)",
        "Headgate sets it because stops and repairs depend on it.",
    ),
    (r"spark\.sql\.catalogImplementation|spark\.sql\.hive\.metastore\..*", ""),
    (r"spark\.databricks\.delta\.(properties\.defaults\.)?coordinatedCommits\..+", ""),
    (r"spark\.(local\.dir|driver\.(host|port|bindAddress)|ui\.(port|enabled|killEnabled))", ""),
    (r"spark\.pyspark\..+|spark\.python\.daemon\.module|spark\.python\.worker\.module", ""),
    (r"spark\.(sql\.)?redaction\..+|spark\.ui\.filters|spark\.authenticate.*", ""),
    (r"spark\.sql\.reflect\.allowList", "SQL must not call Java methods."),
    (r"spark\.sql\.(maven\.additionalRemoteRepositories|udt\..+)", ""),
)
#: Matches a JVM class name, alone or in a list.
CLASS_NAME = re.compile(r"(?:^|[\s,:;])((?:[a-z_]\w*\.)+[A-Z][\w$]*)(?=$|[\s,:;])")
#: Classes that configuration may make the JVM load, identified by class name and never by key.
SAFE_CLASSES = re.compile(
    r"org\.apache\.spark\.serializer\.(Java|Kryo)Serializer"
    r"|org\.apache\.spark\.sql\.execution\.streaming\.state\.(RocksDB|HDFSBacked)StateStoreProvider"
    r"|org\.apache\.spark\.io\.\w+CompressionCodec"
    r"|org\.apache\.spark\.internal\.io\.cloud\.\w+"
    r"|org\.apache\.hadoop\.io\.compress\.\w+Codec"
    # No profile or process providers: a file that they read may specify a program to run.
    r"|org\.apache\.hadoop\.fs\.s3a\.(Simple|Temporary|Anonymous)AWSCredentialsProvider"
    r"|org\.apache\.hadoop\.fs\.s3a\.auth\.(AssumedRoleCredentialProvider"
    r"|IAMInstanceCredentialsProvider)"
    r"|org\.apache\.hadoop\.fs\.s3a\.commit\.(S3ACommitterFactory"
    r"|magic\.MagicS3GuardCommitterFactory"
    r"|staging\.(Directory|Partitioned)?StagingCommitterFactory)"
    r"|software\.amazon\.awssdk\.auth\.credentials\.(Anonymous|Container|Default|InstanceProfile"
    r"|EnvironmentVariable|WebIdentityTokenFile)CredentialsProvider"
    r"|com\.amazonaws\.auth\.(DefaultAWSCredentialsProviderChain"
    r"|EC2ContainerCredentialsProviderWrapper"
    r"|(EnvironmentVariable|InstanceProfile|WebIdentityToken|Container)CredentialsProvider)"
    r"|org\.apache\.hadoop\.fs\.azurebfs\.oauth2\.(ClientCreds|Msi)TokenProvider"
    r"|org\.apache\.hadoop\.hdfs\.server\.namenode\.ha\.(ConfiguredFailover|RequestHedging)"
    r"ProxyProvider"
    r"|org\.apache\.parquet\.hadoop\.ParquetOutputCommitter"
    r"|org\.apache\.iceberg\.spark\.Spark(Session)?Catalog"
    r"|org\.apache\.spark\.sql\.delta\.catalog\.DeltaCatalog"
    r"|java\.[\w.$]+Exception"
)
_WHY_RESERVED = "It is reserved for Headgate."
#: SQL configuration that Spark fixes when it creates the session (`RuntimeConfig.isModifiable`).
_STATIC_SQL = re.compile(
    r"spark\.sql\.(warehouse\.dir|event\.truncate\.length|globalTempDatabase|debug"
    r"|metadataCacheTTLSeconds|reflect\.allowList|hive\..+|catalog\.spark_catalog\.defaultDatabase"
    r"|sources\.disabledJdbcConnProviderList|streaming\.ui\..+|ui\.retainedExecutions"
    r"|filesourceTableRelationCacheSize|codegen\.cache\.maxEntries|codegen\.comments)"
)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: Variables that control Python, the JVM, Spark, the loader, libraries or Headgate itself.
RESERVED_ENVIRONMENT = re.compile(
    r"PATH|HOME|PWD|SHELL|USER|LOGNAME|TMPDIR|LD_.+|DYLD_.+|PYTHON.*|PYSPARK_.+|SPARK_.+|JAVA_.+"
    r"|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|CLASSPATH|HADOOP_.+|YARN_.+|HEADGATE_.+|DJANGO_.+"
    r"|SECRET_KEY|DATABASE_URL|REDIS_URL|CELERY_.+|VIRTUAL_ENV"
    # Variables that make a shell, libc, a TLS or Kerberos library or a cloud client read or run a
    # file.
    r"|BASH_.+|ENV|IFS|PROMPT_COMMAND|PS4|GLIBC_.+|MALLOC_.+|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES"
    r"|RES_OPTIONS|OPENSSL_.+|SSL_CERT_.+|SSLKEYLOGFILE|REQUESTS_CA_BUNDLE|CURL_.+|KRB5.*|NODE_.+"
    r"|PERL.+|RUBY.+|GIT_.+|AWS_CONFIG_FILE|AWS_SHARED_CREDENTIALS_FILE|GOOGLE_APPLICATION_.+",
    re.IGNORECASE,
)
#: Options that Headgate sets on the reader or writer itself, in lower case.
RESERVED_OPTIONS = {
    "checkpointlocation": "Set the query's checkpoint.",
    "queryname": "Spark shows the query's name.",
}
#: A key whose last word is one of these describes a secret but does not contain it.
ABOUT_A_SECRET = re.compile(
    r"(?:[._-]|(?<=[a-z])(?=[A-Z]))(column|field|name|path|location|type|class|url|uri|endpoint"
    r"|provider|mode|enabled|mechanism|interval|seconds|ms|count|limit)$",
    re.IGNORECASE,
)


def application_conf_problems(conf: Mapping[str, str]) -> list[Problem]:
    """Return the problems of an application's Spark configuration."""
    problems = [problem for key, value in conf.items() if (problem := _conf_problem(key, value))]
    return problems + secret_problems("conf", conf)


def query_conf_problems(conf: Mapping[str, str]) -> list[Problem]:
    """Return the problems of a query's session configuration: keys not for SQL, or fixed keys."""
    problems = []
    for key, value in conf.items():
        if not key.startswith("spark.sql."):
            message = "does not belong to a query's session."
            way_out = "A query can set only spark.sql.… keys; set all others on the application."
            problems.append(Problem(f"conf.{key}", value, message, way_out))
        elif _STATIC_SQL.fullmatch(key):
            message = "is fixed when the driver starts."
            way_out = "Set it in the application's configuration."
            problems.append(Problem(f"conf.{key}", value, message, way_out))
        elif problem := _conf_problem(key, value):
            problems.append(problem)
    return problems + secret_problems("conf", conf)


def reach_problems(conf: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each key that redirects paths, loads a class or names a service.

    A definition that was saved before this rule existed may contain such a key; it must never be
    started.
    """
    return [problem for key, value in conf.items() if (problem := _reach_problem(key, value))]


def environment_problems(env: Mapping[str, str], *, allowed: tuple[str, ...]) -> list[Problem]:
    """Return the problems of an application's environment.

    `allowed` are the names that "env:NAME" may resolve on the driver's host.
    """
    problems = []
    for name, value in env.items():
        field = f"env.{name}"
        if not _ENVIRONMENT_NAME.fullmatch(name):
            way_out = "Use letters, digits and _."
            problems.append(Problem(field, value, "is not a variable name.", way_out))
        elif RESERVED_ENVIRONMENT.fullmatch(name):
            message = "controls Python, Java, Spark, a library or Headgate and cannot be set here."
            problems.append(Problem(field, value, message, "Choose another name."))
        if "\0" in value:
            problems.append(Problem(field, "", "contains a null byte.", "Remove it."))
    return problems + secret_problems("env", env) + reference_problems("env", env, allowed=allowed)


def option_problems(field: str, options: Mapping[str, str]) -> list[Problem]:
    """Return the problems of the options of a source, table or sink."""
    problems = [
        Problem(f"{field}.{key}", value, "is set by Headgate.", RESERVED_OPTIONS[key.lower()])
        for key, value in options.items()
        if key.lower() in RESERVED_OPTIONS
    ]
    return problems + secret_problems(field, options)


def secret_problems(field: str, values: Mapping[str, object]) -> list[Problem]:
    """Return a problem for each secret in plain text."""
    problems = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            problems += secret_problems(f"{field}.{key}", value)
        elif isinstance(value, str) and _written_out(key, value):
            message = "looks like a secret in plain text."
            way_out = (
                'Use a reference instead: "env:NAME" for a variable of the drivers\' host, '
                '"file:NAME" for a file in the secrets folder.'
            )
            problems.append(Problem(f"{field}.{key}", MASK, message, way_out))
    return problems


def reference_problems(
    field: str, values: Mapping[str, object], *, allowed: tuple[str, ...]
) -> list[Problem]:
    """Return a problem for each "env:NAME" that the drivers' host does not resolve."""
    return [
        Problem(
            f"{field}.{key}",
            value,
            "is not a variable that definitions can use.",
            f"Add {value.removeprefix('env:')} to HEADGATE_SECRET_ENV, or put the secret in a "
            'file in the secrets folder and write "file:NAME".',
        )
        for key, value in values.items()
        if isinstance(value, str)
        and value.startswith("env:")
        and is_reference(value)
        and value.removeprefix("env:") not in allowed
    ]


def _written_out(key: str, value: str) -> bool:
    if not value or is_reference(value) or MASK in value:
        return False
    named = is_secret_name(key) and not ABOUT_A_SECRET.search(key)
    if named and is_path_to_secret(key, value):
        return False
    return named or mask_text(value) != value


def _conf_problem(key: str, value: str) -> Problem | None:
    field = f"conf.{key}"
    if re.search(r"[\x00-\x1f]", f"{key}{value}"):
        return Problem(field, "", "contains a control character.", "Remove it.")
    if "${" in value:
        message = "contains ${…}, which Spark and Hadoop replace with values from the process."
        return Problem(field, value[:200], message, "Enter the value itself.")
    for pattern, way_out in RESERVED_KEYS:
        if re.fullmatch(pattern, key):
            return Problem(field, value, "cannot be set here.", way_out or _WHY_RESERVED)
    if not APPLICATION_KEYS.fullmatch(key):
        way_out = (
            "You can set spark.sql.…, spark.hadoop.…, and memory, shuffle, network and executor "
            "settings."
        )
        return Problem(field, value, "is not a setting that definitions can change.", way_out)
    return _reach_problem(key, value)


def _reach_problem(key: str, value: str) -> Problem | None:
    """Return how a value redirects a path, loads a class or names a service; else None."""
    if refused := declarations.catalog_service_problem(key, value):
        return refused
    field = f"conf.{key}"
    keys = declarations.hadoop_keys_of(key)
    if forbidden := next(
        filter(None, (declarations.hadoop_refusal(hadoop_key, value) for hadoop_key in keys)), None
    ):
        return Problem(field, value[:200], *forbidden)
    if any(declarations.is_file_system(hadoop_key) for hadoop_key in keys):
        return None
    if name := unknown_class(value):
        message = f"makes the driver load {name}, which is not a known class."
        way_out = "Remove it; a connector provides the classes for its formats."
        return Problem(field, value, message, way_out)
    return None


def unknown_class(value: str) -> str:
    """Return the first unknown class in a value; "" if there is none."""
    named = CLASS_NAME.findall(value)
    return next((name for name in named if not SAFE_CLASSES.fullmatch(name)), "")


#: What the analyzer reads: the meaning of names, types and operators.
_READ = re.compile(
    r"spark\.sql\.("
    r"analyzer\.(allow|canonicalization|dontDeduplicate|expand|fail|lowerEmpty|preferColumn|"
    r"scalarSubquery|subqueryAlias|union|uniqueNecessary)[A-Za-z.]*|"
    r"ansi\.(enabled|relationPrecedence)|caseSensitive|charAsVarchar|"
    r"collation\.[A-Za-z.]+|crossJoin\.enabled|decimalOperations\.allowPrecisionLoss|"
    r"defaultColumn\.[A-Za-z.]+|function\.(concatBinaryAsString|eltOutputAsString)|"
    r"groupByAliases|groupByOrdinal|lateralColumnAlias\.enableImplicitResolution|"
    r"legacy\.[A-Za-z0-9.]+|orderByOrdinal|preserveCharVarcharTypeInfo|"
    r"readSideCharPadding|retainGroupColumns|session\.timeZone|stableDerivedColumnAlias\.enabled|"
    r"storeAssignmentPolicy|timestampType|timeType\.enabled|variable\.substitute)"
)
#: Words, numbers and time zones; a class, a path or an address has a dot, or begins with a slash.
_VALUE = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_+\-/:]{0,63}")
#: What only the planner, the execution, a data source or a page reads, so that names and types are
#: the same without it.
_NOT_READ = re.compile(
    r"spark\.sql\.("
    r"(adaptive|artifact|autoBroadcastJoinThreshold|avro|broadcastTimeout|bucketing|"
    r"cartesianProductExec|catalogImplementation|cbo|chunkBase64String|cli|codegen|columnVector|"
    r"connect|constraintPropagation|csv|debug|exchange|execution|extensions|files|hive|"
    r"inMemoryColumnarStorage|join|json|leafNodeDefaultParallelism|limit|"
    r"maxConcurrentOutputFileWriters|maxMetadataStringLength|maxPlanStringLength|maven|"
    r"objectHashAggregate|optimizer|orc|parquet|planChangeLog|pyspark|redaction|repl|"
    r"sessionWindow|shuffle|shuffleDependency|shuffledHashJoinFactor|sort|sortMergeJoinExec|"
    r"sources|statistics|streaming|subexpressionElimination|thriftserver|thriftServer|"
    r"truncateTable|ui|warehouse|window|windowExec)(\..*)?|catalog\..*)"
)


def is_analyzed(key: str, value: str) -> bool:
    """Return whether a setting is handed to the analyzer."""
    return bool(_READ.fullmatch(key) and _VALUE.fullmatch(value))


def withheld(conf: Mapping[str, str]) -> str:
    """Return the first setting that could change names or types, but is not handed over; or ""."""
    unclear = (
        key
        for key, value in sorted(conf.items())
        if not is_analyzed(key, value) and not _NOT_READ.fullmatch(key)
    )
    return next(unclear, "")
