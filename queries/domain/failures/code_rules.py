"""Rules for code: missing packages and modules, and code that a driver refuses to start."""

from queries.domain.failures.categories import Category, FailureAdvice, FailureRule, rule

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
