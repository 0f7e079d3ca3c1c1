"""Classify a failure: its category, what it means and what to do.

Restarts depend on this: RETRY continues for ever, POISON stops at the policy's limit, FATAL waits
for an operator. What is not known is retried, because a wrong RETRY costs time and a wrong FATAL
costs a night.
"""

import re
from dataclasses import dataclass, replace

from queries.domain.failures import error_text
from queries.domain.failures.categories import AGAIN, GENERAL, Advice, Category, Remedy
from queries.domain.failures.rules import (
    CONDITION_RULES,
    MESSAGE_RULES,
    PACKAGE_CONDITIONS,
    RECREATED,
    SPARK_PACKAGES,
    TYPE_RULES,
    package_missing,
)
from queries.domain.states import Policy


@dataclass(frozen=True, slots=True)
class Classified:
    """What a failure is."""

    category: Category
    policy: Policy
    title: str  # one line for a list: "DIVIDE_BY_ZERO: Division by zero."
    meaning: str  # one or two sentences: why Spark says so
    way_out: str  # what an operator can do, and what happens otherwise
    remedy: Remedy = Remedy.NONE


#: Conditions that the user's own code raises.
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
#: Of Spark's analysis. Java and the stores have a NoSuch…Exception of their own for files, keys,
#: elements and methods, which say nothing about a plan.
_PLAN_TYPE = re.compile(
    r"(Extended)?AnalysisException|ParseException|NoSuch(Catalog|Column|Database|Function|Index"
    r"|Namespace|Partition|Partitions|PermanentFunction|PermanentTable|Procedure|Struct|Table"
    r"|TempFunction|Temporary\w+|View)Exception"
)
#: Of files: `java.nio.file.FileSystemException`, what is derived from it, and Hadoop's.
_STORAGE_TYPE = re.compile(
    r"FileSystem(Exception|LoopException)|AtomicMoveNotSupportedException"
    r"|DirectoryNotEmptyException|FileAlreadyExistsException|NotLinkException|EOFException"
    r"|PathIOException|ParentNotDirectoryException|ClosedChannelException"
)
#: The class of a SQLSTATE (its first two characters) -> category.
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
) -> Classified:
    """Return what a run's failure is.

    The arguments are `RunError`'s: Spark's condition ("" or STREAM_FAILED where it is not
    known; it is then looked for in the texts), the innermost type and message, the whole
    text, and why a start was refused ("held", "own", "fenced", "foreign"). `in_batch` is False
    where it failed before any batch.
    """
    root_cause = error_text.bounded(root_cause)
    message = error_text.without_plan(error_text.bounded(message))
    name = error_text.condition(error_class, root_cause, message)
    title = _title(name, type_name, root_cause or message)
    if refused:
        return _classified(_refusal(refused), title=error_text.first_sentence(root_cause) or title)
    text = f"{root_cause}\n{message}"
    advice = (
        _of_our_own(type_name)
        or _of_package(name, error_class, type_name, text)
        or _of_user_code(name, error_class, type_name, text)
        or _of_condition(name, type_name, text)
        or _of_message(text, type_name)
        or _of_wrapper(name)
        or _of_sqlstate(text)
        or _of_type(type_name, text)
        or GENERAL[Category.UNKNOWN]
    )
    found = _classified(_with_offsets(advice, text), title=title)
    return found if in_batch else replace(found, way_out=found.way_out.replace(AGAIN, ""))


def classify_exit(*, python: str, jvm: str, oom: bool, log_tail: str = "") -> Classified:
    """Return what the death of a driver is, from the shim's exit report.

    `python` and `jvm` are "0", "1"…, "SIGKILL"… or "UNKNOWN". A driver's death is always
    RETRY: the application's ladder counts it.
    """
    log_tail = error_text.bounded(log_tail)
    ended = f"Python {_ending(python)}, JVM {_ending(jvm)}"
    if oom or "OutOfMemoryError" in log_tail:
        advice = GENERAL[Category.MEMORY]
        return _classified(advice, title=f"The driver ran out of memory: {ended}")
    if "No space left on device" in log_tail:
        return _classified(_of_message(log_tail, "") or GENERAL[Category.STORAGE], title=ended)
    meaning, way_out = _exit_advice(python, jvm)
    return _classified(Advice(Category.PROCESS, meaning, way_out), title=f"Driver died: {ended}")


def _title(name: str, type_name: str, text: str) -> str:
    sentence = error_text.first_sentence(error_text.innermost_line(text))
    kind = error_text.short_type(type_name)
    if _USER_CODE.fullmatch(name):  # "KeyError: 'price'" says more than that a function failed
        if "Traceback" in text:
            return sentence
        name = "" if kind not in ("", "Py4JException", "PythonException") else name
    head = name if name and name not in error_text.WRAPPERS else kind
    sentence = sentence.removeprefix(f"{head}: ")
    title = ": ".join(part for part in (head or name, sentence) if part)
    return " ".join(part for part in (title, error_text.suggestion(text)) if part)


def _classified(advice: Advice, *, title: str) -> Classified:
    return Classified(
        category=advice.category,
        policy=advice.category.policy,
        title=" ".join(title.split())[:300] or "Unknown failure",
        meaning=advice.meaning,
        way_out=advice.way_out,
        remedy=advice.remedy,
    )


def _refusal(refused: str) -> Advice:
    category = _REFUSED.get(refused, Category.LOCK)
    if category is Category.OWNERSHIP:
        return Advice(
            category,
            "The checkpoint's owner file names another Headgate installation.",
            "Make sure that the other installation no longer runs this query; then an author "
            "can confirm the takeover.",
        )
    return GENERAL[category]


def _of_our_own(type_name: str) -> Advice | None:
    short = error_text.short_type(type_name)
    return next((rule.advice for rule in TYPE_RULES if re.fullmatch(rule.pattern, short)), None)


def _of_package(name: str, error_class: str, type_name: str, text: str) -> Advice | None:
    """Judge a package that Spark itself needs and that is not there."""
    if PACKAGE_CONDITIONS & {name, error_class, *error_text.conditions(text)}:
        return package_missing("")
    module = error_text.missing_module(type_name, text)
    # `google` is shared by many packages: only its own part is protobuf's.
    depth = 2 if module.startswith("google.") else 1
    package = SPARK_PACKAGES.get(".".join(module.split(".")[:depth]))
    return package_missing(package) if package else None


def _of_user_code(name: str, error_class: str, type_name: str, text: str) -> Advice | None:
    """Judge user code by its error: an unreachable service is retried, a bug is not."""
    names = (name, error_class, *error_text.conditions(text))
    if not any(_USER_CODE.fullmatch(each) for each in names):
        return None
    if _is_connection(type_name, text):
        return GENERAL[Category.CONNECTION]
    inner = [each for each in names if each not in error_text.WRAPPERS]
    found = next((advice for each in inner if (advice := _advice_for(each))), None)
    if found and (found.category.policy is Policy.RETRY or not _USER_CODE.fullmatch(name)):
        return found
    return GENERAL[Category.USER_CODE]


def _is_connection(type_name: str, text: str) -> bool:
    raised = [(type_name, text.split("\n", 1)[0]), *error_text.exceptions(text)]
    return any(
        _CONNECTION_TYPE.fullmatch(error_text.short_type(kind)) or _CONNECTION_TEXT.search(detail)
        for kind, detail in raised
    )


def _advice_for(name: str) -> Advice | None:
    return next((rule.advice for rule in CONDITION_RULES if re.match(rule.pattern, name)), None)


def _of_condition(name: str, type_name: str, text: str) -> Advice | None:
    if not name or name in error_text.WRAPPERS:
        return None
    if name.startswith("FAILED_READ_FILE") and _is_connection(type_name, text):
        return GENERAL[Category.CONNECTION]  # a store that does not respond is not a bad file
    return _advice_for(name)


def _of_message(text: str, type_name: str) -> Advice | None:
    whole = f"{type_name}: {text}"
    found = (rule.advice for rule in MESSAGE_RULES if re.search(rule.pattern, whole, re.IGNORECASE))
    return next(found, None)


def _of_wrapper(name: str) -> Advice | None:
    return _advice_for(name) if name in error_text.WRAPPERS else None


def _of_sqlstate(text: str) -> Advice | None:
    category = _SQLSTATES.get(error_text.sqlstate(text)[:2])
    return GENERAL[category] if category else None


def _of_type(type_name: str, text: str) -> Advice | None:
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


def _with_offsets(advice: Advice, text: str) -> Advice:
    """Add the partitions and offsets that were lost, if Spark names them."""
    if advice.category is not Category.SOURCE_LOST:
        return advice
    moved = re.findall(r"offset was changed from (\d{1,19}) to (\d{1,19})", text)
    if any(int(after) < int(before) for before, after in moved):
        return RECREATED  # there is no gap before what is left, so nothing to go over
    gone = re.search(r"offset \[(\d+), (\d+)\) for topic partition (\S+?-\d+)", text)
    if not gone:
        return advice
    first, last, partition = gone.groups()
    detail = f" Partition {partition}: from offset {first} up to {last}."
    return replace(advice, meaning=advice.meaning + detail)


def _ending(code: str) -> str:
    if code == "UNKNOWN":
        return "ended, unknown how"
    return f"killed by {code}" if code.startswith("SIG") else f"left with {code or 'no code'}"


def _exit_advice(python: str, jvm: str) -> tuple[str, str]:
    general = GENERAL[Category.PROCESS]
    if "SIGKILL" in (python, jvm):
        return (
            "The driver was killed with kill -9, or by the kernel because it ran out of memory.",
            "It is restarted from the checkpoint. If this happens again, look for the OOM killer "
            "in the kernel's log.",
        )
    if "UNKNOWN" in (python, jvm):
        return (
            "The driver is gone, and how it ended is unknown: its shim died too, or the host was "
            "restarted.",
            general.way_out,
        )
    if jvm in ("SIGSEGV", "SIGBUS", "SIGABRT", "134"):
        return ("The JVM crashed.", f"{general.way_out} Look for an hs_err file in its folder.")
    return general.meaning, general.way_out
