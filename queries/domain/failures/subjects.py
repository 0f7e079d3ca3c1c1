"""The kinds of subjects that fail, and how advice is worded for each.

What can be done depends on who writes the definition: Headgate edits, starts and resets a SQL
query, but a script controls its own queries. So remedies refer to actions by placeholders
(`{start}`), and `fitted` fills in the action that the API accepts for the failed subject.
"""

from enum import StrEnum


class FailureSubject(StrEnum):
    """What failed, as far as the remedy depends on it."""

    SQL = "sql"  # a SQL query over named sources
    FUNCTION = "function"  # a query built by a Python function
    SCRIPT = "script"  # a query started by a script
    APPLICATION = "application"  # a driver, or the script it runs


def subject_of(kind: str, *, discovered: bool) -> FailureSubject:
    """Return the subject of a query's failure, from its revision's `kind` and its discovery."""
    if discovered:
        return FailureSubject.SCRIPT
    return FailureSubject.FUNCTION if kind == "python" else FailureSubject.SQL


_NEW_LOCATION = "set another checkpointLocation in the script, then restart the application"
_OFFSETS = "reset the query to specific offsets, one for each partition"
_SCRIPT = {
    "start": "start the application",
    "restart": "restart the application",
    "edit": "Change the script",
    "code": "the script",
    "renew": f"{_NEW_LOCATION}: the query starts there without its state",
    "to_earliest": (
        "Headgate cannot reset a query that a script starts. In the script, set another "
        "checkpointLocation and startingOffsets=earliest, then restart the application. The "
        "query then reads all available data, without its state."
    ),
    "from_start": (
        "Headgate cannot reset a query that a script starts. In the script, set another "
        "checkpointLocation, then restart the application. The query then reads what the table "
        "still has, without its state."
    ),
    "go_on": (
        "Set the source's failOnDataLoss option to false in the script, which keeps the state, "
        f"then restart the application. Or {_NEW_LOCATION}."
    ),
    "past_record": (
        "change the script to read from the next offset (startingOffsets, another "
        "checkpointLocation)"
    ),
    "package": (
        "Add the package to the application's packages field, or correct the import, then restart "
        "the application."
    ),
    "async_off": (
        "write asyncProgressTrackingCheckpointIntervalMs=0 in the script and restart the "
        "application with async progress tracking on; once two batches have committed, remove both"
    ),
    "takeover": (
        "Make sure that the other installation no longer runs this query; then set another "
        "checkpointLocation in the script, or copy the checkpoint there."
    ),
}
_QUERY = {
    "start": "start the query",
    "restart": "restart the query",
    "edit": "Change the definition",
    "code": "the query's SQL",
    "renew": "reset the query, which gives it a new checkpoint without its state",
    "to_earliest": (
        "Reset the query to earliest: it reads all available data, with a new checkpoint and "
        "without its state. To skip part of the data, reset to offsets instead."
    ),
    "from_start": (
        "Reset the query to earliest: it reads what the table still has, with a new checkpoint and "
        "without its state."
    ),
    "go_on": (
        "Continue without the lost data, which keeps the state and records the loss, or reset the "
        "query to another position in its source."
    ),
    "past_record": "reset the query to offsets, using the next offset for its partition",
    "package": (
        "Add the package to the application's packages field, then restart the application."
    ),
    "async_off": (
        "switch it off the safe way, which recovers the query (on this page, or POST to the "
        "query's async-off/): Headgate starts the query with tracking on and "
        "asyncProgressTrackingCheckpointIntervalMs=0, lets two batches commit, then switches "
        "tracking off"
    ),
    "takeover": (
        "Make sure that the other installation no longer runs this query; then an author can "
        "confirm the takeover."
    ),
}
_WORDS: dict[FailureSubject, dict[str, str]] = {
    FailureSubject.SQL: _QUERY,
    FailureSubject.FUNCTION: {
        **_QUERY,
        "edit": "Change the definition or its function",
        "code": "the function",
        "renew": (
            "reset the query, which gives it a new checkpoint without its state (if it reads "
            "Kafka, reset it to offsets: the broker is specified inside the query's function, so "
            "Headgate does not contact that broker)"
        ),
        "to_earliest": (
            "The broker is specified inside the query's function, so Headgate does not contact "
            f"that broker: {_OFFSETS} (0 if nothing was deleted). The query reads from there with "
            "a new checkpoint and without its state."
        ),
        "go_on": (
            "Set the source's failOnDataLoss option to false in the function, which keeps the "
            f"state, then restart the query. Or {_OFFSETS}."
        ),
        "package": _SCRIPT["package"],
        "async_off": (
            "switch it off the safe way: write asyncProgressTrackingCheckpointIntervalMs=0 in the "
            "function, with async progress tracking on, and restart the query; once two batches "
            "have committed, remove both"
        ),
    },
    FailureSubject.SCRIPT: _SCRIPT,
    FailureSubject.APPLICATION: {**_SCRIPT, "edit": "Change the application or its script"},
}


def fitted(way_out: str, subject: FailureSubject) -> str:
    """Return a remedy worded for the subject; each sentence begins with a capital letter."""
    text = way_out.format_map(_WORDS[subject])
    return text[:1].upper() + text[1:]
