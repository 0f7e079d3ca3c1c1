"""Classify a failure: its category, meaning and remedy.

Restarts depend on this: RETRY continues forever, POISON and LIMITED stop at the policy's limit,
FATAL waits for an operator. Unknown failures are retried, because a wrong RETRY costs minutes and a
wrong FATAL costs a night.
"""

import re
from dataclasses import dataclass, replace

from queries.domain.failures import crashes, error_text, source_rules, store_rules
from queries.domain.failures.categories import (
    AGAIN,
    GENERAL,
    Category,
    FailureAdvice,
    FailureRule,
    FailureSubject,
    Remedy,
    fitted,
)
from queries.domain.failures.rules import (
    CONDITION_RULES,
    CONNECT,
    CONNECT_CONDITIONS,
    CONNECT_MODULES,
    MESSAGE_RULES,
    PACKAGE_CONDITIONS,
    SPARK_PACKAGES,
    SYSTEM_RULES,
    TYPE_RULES,
    module_missing,
    package_missing,
)
from queries.domain.states import Policy


@dataclass(frozen=True, slots=True)
class Classified:
    """The classification of a failure."""

    category: Category
    policy: Policy
    title: str  # one line for a list: "DIVIDE_BY_ZERO: Division by zero."
    meaning: str  # one or two sentences: why Spark reports this
    way_out: str  # what an operator can do, and what happens otherwise
    remedy: Remedy = Remedy.NONE
    any_batch: bool = False  # `FailureAdvice.any_batch`


#: Conditions raised by the user's own code.
_USER_CODE = re.compile(
    r"FOREACH_(BATCH_)?USER_FUNCTION_ERROR|PYTHON_(STREAMING_)?DATA_SOURCE\w*ERROR"
    r"|PYTHON_EXCEPTION|\w+_USER_FUNCTION_ERROR|FAILED_EXECUTE_UDF|HEADGATE_USER_CODE"
)
_CONNECTION_TYPE = re.compile(
    r"Connection\w*Error|ConnectError|BrokenPipeError|\w*Timeout\w*|timeout|gaierror|herror"
    r"|URLError|HTTP\w*Error|HttpException|HttpResponseException|Client(OS|Response|Payload)?Error"
    r"|Client\w*(Connection|Connector)\w*|ServerDisconnectedError|RemoteDisconnected|ReadError"
    r"|RemoteProtocolError|ProtocolError|IncompleteRead|MaxRetryError|NewConnectionError|SSLError"
    r"|ConnectException|Socket\w*Exception|UnknownHostException|NoRouteToHostException"
    r"|HttpHostConnectException|SSL\w*Exception|DisconnectException|InterruptedIOException"
    r"|NetworkException|BrokerNotAvailableException|ChannelClosedException"
)
_CONNECTION_TEXT = re.compile(
    r"connection (was |has been )?(refused|reset|aborted|closed|lost|timed out)"
    r"|(could not|can't|cannot|failed to|unable to) connect|timed[ -]?out|time-out|broken pipe"
    r"|name resolution|name or service not known|no route to host|network is unreachable"
    r"|http (error |status |code )*[45]\d\d|\b[45]\d\d (client|server) error|too many requests"
    r"|service unavailable|bad gateway|gateway time|server has gone away|database is locked"
    r"|deadlock detected|errno (32|104|110|111|113)\b",
    re.IGNORECASE,
)
#: Exception types from Spark's analysis. Java and the stores have their own NoSuch…Exceptions for
#: files, keys, elements and methods, which say nothing about a plan.
_PLAN_TYPE = re.compile(
    r"(Extended)?AnalysisException|ParseException|NoSuch(Catalog|Column|Database|Function|Index"
    r"|Namespace|Partition|Partitions|PermanentFunction|PermanentTable|Procedure|Struct|Table"
    r"|TempFunction|Temporary\w+|View)Exception"
)
#: Titles that py4j leaves if Java told it nothing more.
_PY4J = ("Py4JError: An error occurred while calling", "Py4JNetworkError: ")
#: File errors: `java.nio.file.FileSystemException`, its subclasses, and Hadoop's.
_STORAGE_TYPE = re.compile(
    r"FileSystem(Exception|LoopException)|AtomicMoveNotSupportedException"
    r"|DirectoryNotEmptyException|FileAlreadyExistsException|NotLinkException|EOFException"
    r"|PathIOException|ParentNotDirectoryException|ClosedChannelException"
)
#: Names of what PySpark's Spark Connect client requires, and of the places where it reports that
#: something is missing.
_CONNECT_TEXT = re.compile(r"grpcio|googleapis|zstandard|pyspark/sql/connect/")
#: SQLSTATE class (its first two characters) -> category.
_SQLSTATES = {
    "08": Category.CONNECTION,
    "0A": Category.CONFIGURATION,
    "21": Category.DATA,
    "22": Category.DATA,
    "23": Category.DATA,
    "38": Category.USER_CODE,
    "39": Category.USER_CODE,
    "42": Category.PLAN,
    "46": Category.CONFIGURATION,
    "53": Category.CAPACITY,
    "54": Category.DATA,
    "58": Category.STORAGE,
    "82": Category.CAPACITY,
    "P0": Category.DATA,
}
_REFUSED = {
    "held": Category.LOCK,
    "own": Category.EARLIER_RUN,
    "fenced": Category.FENCED,
    "foreign": Category.OWNERSHIP,
}


def classify(
    *,
    error_class: str,
    type_name: str,
    root_cause: str,
    message: str,
    refused: str = "",
    in_batch: bool = True,
    subject: FailureSubject = FailureSubject.SQL,
) -> Classified:
    """Return how a run's failure is classified, with a remedy that the API accepts for the subject.

    The arguments are `RunError`'s: Spark's condition ("" or STREAM_FAILED if it is not known; the
    messages are then searched for it), the innermost type and message, the full text, and why a
    start was refused ("held", "own", "fenced", "foreign"). `in_batch` is False if it failed before
    any batch.
    """
    root_cause = error_text.bounded(root_cause)
    message = error_text.without_plan(error_text.bounded(message))
    name = error_text.condition(error_class, root_cause, message)
    title = _title(name, type_name, root_cause or message)
    if refused:
        title = error_text.first_sentence(root_cause) or title
        return _classified(_refusal(refused), title=title, subject=subject)
    text = f"{root_cause}\n{message}"
    advice = (
        _of_our_own(type_name)
        or _of_package(name, error_class, type_name, text)
        or _of_user_code(name, error_class, type_name, text)
        or _of_condition(name, type_name, text)
        or _of_message(text, type_name)
        or _of_wrapper(name, text)
        or _of_sqlstate(text)
        or _of_type(type_name, text)
        or GENERAL[Category.UNKNOWN]
    )
    advice = store_rules.detailed(source_rules.detailed(advice, text), text)
    if title.startswith(_PY4J):  # it says what Python called, and not what went wrong
        title = error_text.first_sentence(advice.meaning).removesuffix(".")
    classification = _classified(advice, title=title, subject=subject)
    return (
        classification
        if in_batch
        else replace(classification, way_out=classification.way_out.replace(AGAIN, ""))
    )


def classify_exit(
    *, python: str, jvm: str, oom: bool, killed: str = "", log_tail: str = "", pod: str = ""
) -> Classified:
    """Return the meaning of a driver's death, from the shim's exit report.

    `python` and `jvm` are "0", "1"…, "SIGKILL"… or "UNKNOWN"; `killed` is a `Killer`, or "". `pod`
    is the sentence on why its pod ended, or "". A driver's death is always RETRY: the application's
    backoff counts it.
    """
    log_tail = error_text.bounded(log_tail)
    ended = f"Python {crashes.words(python)}, JVM {crashes.words(jvm)}"
    if oom or "OutOfMemoryError" in log_tail:
        advice = GENERAL[Category.MEMORY]
        return _of_driver(advice, pod or f"The driver ran out of memory: {ended}")
    if "No space left on device" in log_tail:
        return _of_driver(_of_message(log_tail, "") or GENERAL[Category.STORAGE], ended)
    if jvm == crashes.EXECUTORS_FAILED and (said := crashes.TOO_MANY.search(log_tail)):
        advice = _of_message(said[0], "") or GENERAL[Category.PROCESS]
        return _of_driver(advice, f"Too many executors failed: {ended}")
    title = pod or crashes.NOT_STARTED.get(killed, f"Driver died: {ended}")
    return _of_driver(crashes.advice(python, jvm, killed), title)


def _title(name: str, type_name: str, text: str) -> str:
    text = error_text.readable(text)
    sentence = error_text.first_sentence(error_text.innermost_line(text))
    kind = error_text.short_type(type_name)
    if _USER_CODE.fullmatch(name):  # "KeyError: 'price'" says more than that a function failed
        if "Traceback" in text:
            return sentence
        name = "" if kind not in ("", "Py4JException", "PythonException") else name
    elif kind.startswith("Py4J") and (inner := error_text.exceptions(sentence)):
        (name_of, sentence), *_ = inner  # of the Java method that py4j called
        kind = error_text.short_type(name_of)
    head = name if name and name not in error_text.WRAPPERS else kind
    sentence = sentence.removeprefix(f"{head}: ")
    title = ": ".join(part for part in (head or name, sentence) if part)
    return " ".join(part for part in (title, error_text.suggestion(text)) if part)


def _of_driver(advice: FailureAdvice, title: str) -> Classified:
    return _classified(advice, title=title, subject=FailureSubject.APPLICATION)


def _classified(advice: FailureAdvice, *, title: str, subject: FailureSubject) -> Classified:
    return Classified(
        category=advice.category,
        policy=advice.policy or advice.category.policy,
        title=" ".join(title.split())[:300] or "Unknown failure",
        meaning=advice.meaning,
        way_out=fitted(advice.way_out, subject),
        remedy=advice.remedy,
        any_batch=advice.any_batch,
    )


def _refusal(refused: str) -> FailureAdvice:
    category = _REFUSED.get(refused, Category.LOCK)
    if category is Category.OWNERSHIP:
        return FailureAdvice(
            category,
            "The checkpoint's owner file names another Headgate installation.",
            "{takeover}",
        )
    return GENERAL[category]


def _of_our_own(type_name: str) -> FailureAdvice | None:
    short = error_text.short_type(type_name)
    return next((rule.advice for rule in TYPE_RULES if re.fullmatch(rule.pattern, short)), None)


def _of_package(name: str, error_class: str, type_name: str, text: str) -> FailureAdvice | None:
    """Return the advice if a package that Spark needs, or that users' code imports, is missing."""
    names = {name, error_class, *error_text.conditions(text)}
    if names & CONNECT_CONDITIONS or (names & PACKAGE_CONDITIONS and _CONNECT_TEXT.search(text)):
        return CONNECT
    if names & PACKAGE_CONDITIONS:
        return package_missing("")
    module = error_text.missing_module(type_name, text)
    if not module:
        return None
    # Many packages share `google`: only this part of it belongs to protobuf.
    top = ".".join(module.split(".")[: 2 if module.startswith("google.") else 1])
    if top in CONNECT_MODULES:
        return CONNECT
    return package_missing(SPARK_PACKAGES[top]) if top in SPARK_PACKAGES else module_missing(module)


def _of_user_code(name: str, error_class: str, type_name: str, text: str) -> FailureAdvice | None:
    """Classify user code by its error: an unreachable service is retried, a bug is not."""
    names = (name, error_class, *error_text.conditions(text))
    if not any(_USER_CODE.fullmatch(condition) for condition in names):
        return None
    if store := _matching(SYSTEM_RULES, type_name, text):
        return store
    if _is_connection(type_name, text):
        return GENERAL[Category.CONNECTION]
    inner = [condition for condition in names if condition not in error_text.WRAPPERS]
    inner_advice = next(
        (advice for condition in inner if (advice := _advice_for(condition, text))), None
    )
    if inner_advice and (
        inner_advice.category.policy is Policy.RETRY or not _USER_CODE.fullmatch(name)
    ):
        return inner_advice
    return GENERAL[Category.USER_CODE]


def _is_connection(type_name: str, text: str) -> bool:
    raised = [(type_name, text.split("\n", 1)[0]), *error_text.exceptions(text)]
    return any(
        _CONNECTION_TYPE.fullmatch(error_text.short_type(kind)) or _CONNECTION_TEXT.search(detail)
        for kind, detail in raised
    )


def _advice_for(name: str, text: str) -> FailureAdvice | None:
    for rule in CONDITION_RULES:
        if re.match(rule.pattern, name) and re.search(rule.text, text):
            return rule.advice
    return None


def _of_condition(name: str, type_name: str, text: str) -> FailureAdvice | None:
    if not name or name in error_text.WRAPPERS:
        return None
    advice = _advice_for(name, text)
    reads = name.startswith("FAILED_READ_FILE")
    if reads or (advice and advice.category is Category.STORAGE):
        # The condition says which file it was; what its store answered is one of the causes.
        if store := _matching(SYSTEM_RULES, type_name, text):
            return store
        if reads and _is_connection(type_name, text):
            return GENERAL[Category.CONNECTION]  # a store that is not responding is not a bad file
    return advice


def _of_message(text: str, type_name: str) -> FailureAdvice | None:
    return _matching(MESSAGE_RULES, type_name, text)


def _matching(rules: tuple[FailureRule, ...], type_name: str, text: str) -> FailureAdvice | None:
    """Return the advice of the first of the rules that matches a failure's type or messages."""
    whole = f"{type_name}: {text}"
    matches = (rule.advice for rule in rules if re.search(rule.pattern, whole, re.IGNORECASE))
    return next(matches, None)


def _of_wrapper(name: str, text: str) -> FailureAdvice | None:
    return _advice_for(name, text) if name in error_text.WRAPPERS else None


def _of_sqlstate(text: str) -> FailureAdvice | None:
    category = _SQLSTATES.get(error_text.sqlstate(text)[:2])
    return GENERAL[category] if category else None


def _of_type(type_name: str, text: str) -> FailureAdvice | None:
    if _is_connection(type_name, text):
        return GENERAL[Category.CONNECTION]
    short = error_text.short_type(type_name)
    if _PLAN_TYPE.fullmatch(short):
        return GENERAL[Category.PLAN]
    if _STORAGE_TYPE.fullmatch(short):
        return GENERAL[Category.STORAGE]
    if short.startswith("Py4J"):
        return GENERAL[Category.PROCESS]
    if "." not in type_name and short.endswith(("Error", "Exception")):
        return GENERAL[Category.USER_CODE]  # Python's own types have no dot, Java's always do
    return None
