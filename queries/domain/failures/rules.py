"""Rules for failures of Spark and of code: condition or message -> category, meaning, remedy.

The rules come from Spark 4.3.0's source and from failures observed with it. Several failures have
no condition at all, so there is also a table of messages. Order matters: the first matching rule
wins, so narrower rules come first. Remedies contain the placeholders from `subjects`.
"""

from queries.domain.failures import kubernetes_rules, source_rules, state_rules, store_rules
from queries.domain.failures.categories import AGAIN, Category, FailureAdvice, FailureRule, rule

#: The type of a missing module that was added to the code after the driver started.
MODULE_ADDED_LATER = "ModuleAddedLater"

#: Packages that Spark itself imports: module name -> name to install.
SPARK_PACKAGES = {
    "google": "protobuf",  # without it, there is often no package `google` at all
    "google.protobuf": "protobuf",
    "numpy": "numpy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
}
#: PySpark's conditions for a missing or outdated package.
PACKAGE_CONDITIONS = frozenset({"PACKAGE_NOT_INSTALLED", "UNSUPPORTED_PACKAGE_VERSION"})
#: PySpark's conditions if a Spark Connect session is requested.
CONNECT_CONDITIONS = frozenset(
    {
        "SESSION_ALREADY_EXIST",
        "CANNOT_CONFIGURE_SPARK_CONNECT",
        "CANNOT_CONFIGURE_SPARK_CONNECT_MASTER",
    }
)
#: Modules that only Spark Connect's client imports.
CONNECT_MODULES = frozenset({"grpc", "grpc_status", "zstandard", "google.rpc", "googleapis"})
#: Its queries run in another process, where our driver cannot see them.
CONNECT = FailureAdvice(
    Category.CONFIGURATION,
    "The code uses Spark Connect (SparkSession.builder.remote, SPARK_REMOTE), which Headgate "
    "does not support: the query would run in the Connect server's process, where Headgate "
    "cannot lock its checkpoint, see its batches or stop it.",
    "In {code}, use SparkSession.builder.getOrCreate(), which returns the driver's session; the "
    "application's master field sets the cluster. Then {start}.",
)


def package_missing(package: str) -> FailureAdvice:
    """Return the advice for a package that Spark needs; "" if only the root cause names it."""
    named = package or "the package that the root cause names"
    how = f" (`pip install {package}`)" if package else ""
    return FailureAdvice(
        Category.CONFIGURATION,
        f"Spark needs the Python package {package} for this query, but the package is not "
        "installed."
        if package
        else "For this query, Spark needs a Python package that is missing or too old.",
        f"Add {named} to the application's packages field, or install it in Headgate's Python "
        f"environment{how}; then restart the application and {{start}}.",
    )


def module_missing(module: str) -> FailureAdvice:
    """Return the advice for a module that users' code imports but Python cannot find."""
    return FailureAdvice(
        Category.USER_CODE,
        f"The code imports {module}, which is neither in the code folders nor in an installed "
        "package.",
        "{package}",
    )


#: Matched against the type, for anything that our own driver refuses to start (`queries.runtime`).
TYPE_RULES: tuple[FailureRule, ...] = (
    rule(
        r"NotAWriter|StartsItself|QueryOnly|CallsNeedBatches",
        Category.CONFIGURATION,
        "The definition does not produce a stream that Headgate can start.",
        "Fix what the root cause reports, then {start}.",
    ),
    rule(r"KillsDriver", Category.CULPRIT),
    rule(
        MODULE_ADDED_LATER,
        Category.USER_CODE,
        "The code on disk contains this module, but the driver runs the copy that was made "
        "when it started.",
        "Restart the application; its new driver runs the code on disk. Until then, the query "
        "retries.",
    ),
    rule(
        r"ExitInUsersCode",
        Category.USER_CODE,
        "The query's own code tried to exit the process (with sys.exit(), for example). A "
        "query cannot end its driver because other queries may run in it.",
        "Remove the call at the line in the root cause, or raise an error instead; then {restart}.",
    ),
    rule(
        r"StartTimedOut",
        Category.UNKNOWN,
        "The query did not start within the time limit: a function in its code does not return, "
        "or a service that the code waits for does not respond.",
        "Check the line in the root cause, if there is one, and add a timeout to such calls. A "
        "thread that does not end keeps its checkpoint locked; only a new driver releases the "
        "lock.",
    ),
    rule(
        r"SecretTooShort",
        Category.CONFIGURATION,
        "A secret used in the definition has fewer than 8 characters. Such a secret cannot be "
        "masked without damaging other texts, so no driver uses it.",
        "Give the system that the secret is for a longer one, store it in the secrets folder or "
        "the worker's environment, then {start}.",
    ),
    rule(
        r"ReferenceMissing",
        Category.CONFIGURATION,
        "A secret used in the definition is missing on the driver's host.",
        "Add the secret there (in the environment or the secrets folder), then {start}.",
    ),
)


#: Matched against Spark's condition, from its start.
CONDITION_RULES: tuple[FailureRule, ...] = (
    *source_rules.KAFKA_CONDITIONS,
    *source_rules.TABLE_CONDITIONS,
    FailureRule(
        r"CONNECT_|SPARK_CONNECT_|UNSUPPORTED_CONNECT_FEATURE"
        r"|INVALID_PARAMETER_VALUE\.STREAMING_LISTENER_COMMAND_MISSING",
        CONNECT,
    ),
    rule(
        r"STREAMING_OUTPUT_MODE",
        Category.CONFIGURATION,
        "Session windows do not support the update output mode.",
        "Use append, with a watermark on the event time, or complete; then {start}.",
        text=r"session window",
    ),
    rule(
        r"STREAMING_OUTPUT_MODE",
        Category.CONFIGURATION,
        "The complete output mode writes the entire aggregation each time, but this query does "
        "not aggregate.",
        "Use append or update, then {start}.",
        text=r"no streaming aggregations",
    ),
    rule(
        r"STREAMING_OUTPUT_MODE\.UNSUPPORTED_DATASOURCE",
        Category.CONFIGURATION,
        "The sink does not support this output mode.",
        "File sinks and continuous processing support only append. Choose a mode that the "
        "sink supports, then {start}.",
    ),
    rule(
        r"STREAMING_OUTPUT_MODE|UNSUPPORTED_STREAMING_OPERATOR_WITHOUT_WATERMARK",
        Category.CONFIGURATION,
        "The sink's output mode does not match the query's aggregation.",
        "Append needs a watermark on the event-time column used for grouping; update and "
        "complete do not. File sinks support only append. {edit}, then {start}.",
    ),
    rule(
        r"STREAMING_REAL_TIME_MODE|INVALID_STREAMING_REAL_TIME_MODE",
        Category.CONFIGURATION,
        "This query does not meet the requirements of real-time mode.",
        "Real-time mode needs a Kafka source, the update output mode, an interval of 5 s or more, "
        "a Kafka, console or memory sink, and no Python functions on rows. Otherwise use a "
        "processing-time trigger.",
    ),
    rule(
        r"HEADGATE_QUERY_IDENTITY",
        Category.CONFIGURATION,
        "The script starts an unknown query, but has not started a known one. Both may be the "
        "same query under different names; with a new checkpoint, the query would then process "
        "data again or skip data. The unknown query was not started.",
        "An author must choose on the application's page which query it is. Alternatively, "
        "restore the query's old name in the script, then {start}.",
    ),
    rule(r"STREAMING_QUERY_EVOLUTION_ERROR|HEADGATE_CONFIGURATION", Category.CONFIGURATION),
    *state_rules.CONDITIONS,
    rule(
        r"CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT|UNABLE_TO_ACQUIRE_MEMORY|\w+_OUT_OF_MEMORY",
        Category.CAPACITY,
    ),
    rule(
        r"_LEGACY_ERROR_TEMP_(1114|1190|1191|1193|1195|1298|1299|2048|2049|2200|2209|2261|2263)$"
        r"|CANNOT_LOAD_CHECKPOINT_FILE_MANAGER\.ERROR_LOADING_CLASS|DATA_SOURCE_STREAMING_WRITE"
        r"|INVALID_CONF_VALUE",
        Category.CONFIGURATION,
        "",
        "Fix what the root cause reports: {edit}, then {start}.",
    ),
    rule(
        r"FAILED_READ_FILE",
        Category.DATA,
        "A source file cannot be read: it is damaged, in another format, or missing.",
        "Repair or remove the file named in the root cause, or set the source's "
        "ignoreCorruptFiles or ignoreMissingFiles option to true; then {restart}.",
    ),
    rule(
        r"DIVIDE_BY_ZERO|INTERVAL_DIVIDED_BY_ZERO|REMAINDER_BY_ZERO",
        Category.DATA,
        "A row in the batch causes a division by zero, which is an error in Spark's ANSI mode.",
        "Use try_divide(a, b), or a / nullif(b, 0), or filter out such rows; then "
        f"{{restart}}{AGAIN}.",
    ),
    rule(
        r"CAST_INVALID_INPUT|CAST_OVERFLOW|CONVERSION_INVALID_INPUT|CANNOT_PARSE_",
        Category.DATA,
        "A value in the batch cannot be cast to the requested type.",
        "Use try_cast or try_to_timestamp, or filter out such rows; then {restart}.",
    ),
    rule(
        r"ARITHMETIC_OVERFLOW|BINARY_ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE"
        r"|DATETIME_OVERFLOW",
        Category.DATA,
        "A result is too large for its type.",
        "Cast to a wider type (bigint, decimal, double) or use try_add, try_multiply…; then "
        "{restart}.",
    ),
    rule(
        r"MALFORMED_RECORD_IN_PARSING|MALFORMED_CSV_RECORD|INVALID_ARRAY_INDEX"
        r"|NOT_NULL_ASSERT_VIOLATION|USER_RAISED_EXCEPTION|\w*_USER_RAISED_EXCEPTION"
        r"|DUPLICATED_MAP_KEY|MAP_KEY_DOES_NOT_EXIST|CHECK_CONSTRAINT_VIOLATION",
        Category.DATA,
    ),
    rule(
        r"ARROW_(SCHEMA|TYPE)_\w+|DUPLICATED_FIELD_NAME_IN_ARROW_STRUCT",
        Category.USER_CODE,
        "A Python function returns columns or types that differ from its declared schema.",
        "Correct the function or its schema in {code}, then {restart}.",
    ),
    rule(
        r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|STREAMING_PYTHON_RUNNER_INITIALIZATION",
        Category.PROCESS,
    ),
    rule(r"STREAMING_SHUFFLE_(CHECKSUM|INCORRECT|UNEXPECTED)", Category.SPARK_FAULT),
    rule(
        r"STREAMING_SHUFFLE_WRITER_CONNECTION_TIMEOUT|INTERNAL_ERROR_NETWORK", Category.CONNECTION
    ),
)

#: Of systems that Spark uses; what they answer says more than the condition that Spark puts around
#: it.
SYSTEM_RULES: tuple[FailureRule, ...] = (*kubernetes_rules.MESSAGES, *store_rules.MESSAGES)
#: Searched in the whole text, ignoring case, for failures without a condition.
MESSAGE_RULES: tuple[FailureRule, ...] = (
    *kubernetes_rules.MESSAGES,
    *source_rules.KAFKA_MESSAGES,
    *source_rules.TABLE_MESSAGES,
    *state_rules.MESSAGES,
    *store_rules.MESSAGES,
    rule(
        r"does not support async progress tracking"
        r"|Async progress tracking cannot be used with",
        Category.CONFIGURATION,
        "Async progress tracking supports only stateless queries, a processing-time trigger and a "
        "Kafka, console, memory, noop or foreach sink.",
        "Remove asyncProgressTrackingEnabled from the sink's options, or change the "
        "unsupported part of the query.",
    ),
    rule(
        r"Failed to find data source|Unable to find (Kafka )?data source",
        Category.CONFIGURATION,
        "The driver has no data source for this format.",
        "Add the connector to the application, or correct the format.",
    ),
    rule(
        r"is above the max threshold \(\d+ MB\) of this cluster",
        Category.CONFIGURATION,
        "The application requests a larger container from YARN than the cluster allows.",
        "Set spark.executor.memory, or spark.yarn.am.memory, so that it and its overhead (10 "
        "%, at least 384 MB) stay within the threshold, or have "
        "yarn.scheduler.maximum-allocation-mb raised; then restart the application.",
    ),
    rule(
        r"OutOfMemoryError|GC overhead limit exceeded|Java heap space",
        Category.MEMORY,
    ),
    rule(
        r"No space left on device|Disk quota exceeded",
        Category.STORAGE,
        "A disk is full.",
        "The query retries. Free up space where the driver writes.",
    ),
    rule(
        r"Too many open files|unable to create (new )?native thread",
        Category.CAPACITY,
        "The host's limit for open files or threads has been reached.",
        "The query retries. Raise the limit for the account that runs drivers.",
    ),
    rule(
        r"The master spark://\S+ did not accept this driver",
        Category.CONNECTION,
        "The cluster's master did not accept the driver: the master cannot be reached, or it runs "
        "another version of Spark than the application.",
        "The query retries. Compare the application's version of Spark with the version on the "
        "master's web page, and check that the master is running at the address that the "
        "application names.",
    ),
    rule(
        r"Py4JNetworkError|Answer from Java side is empty|Error while sending or receiving"
        r"|SparkContext (was|has been|is already) (shut ?down|stopped)"
        r"|Cannot call methods on a stopped SparkContext",
        Category.PROCESS,
        "The driver's JVM ended while the query was running.",
    ),
    rule(
        r"Python worker (exited unexpectedly|failed to connect back)|Executor heartbeat timed out"
        r"|ExecutorLostFailure",
        Category.PROCESS,
        "A worker process of the driver died.",
        "The query retries. If the failure persists, the function may need more memory.",
    ),
    rule(
        r"Permission denied|AccessControlException|AccessDeniedException",
        Category.STORAGE,
        "The drivers' account does not have permission to read or write a file.",
        "The query retries. Give the account access to the path in the root cause.",
    ),
    rule(
        r"Path does not exist|FileNotFoundException|NoSuchFileException|No such file or directory"
        r"|NotDirectoryException|NoSuch(Key|Upload)Exception",
        Category.STORAGE,
        "A file or folder does not exist.",
        "The query retries. Create the file or folder, or correct the path in the definition.",
    ),
)
