"""What a verb will do to a query and its neighbours, in words shown before it is requested."""

from collections.abc import Mapping

from queries.domain.definitions.spec import ENDING_TRIGGERS
from queries.domain.states import FAILED_PHASES, STOPPED_PHASES, Desired, StopMode, Verb
from queries.selectors.hosts import AwayHost, away
from queries.selectors.query_lines import QueryLine
from queries.selectors.supervision.applications import application_detail

#: (value, label, hint) for the two ways to stop.
STOP_MODES = (
    (
        StopMode.GRACEFUL,
        "After the batch in flight",
        "The batch is finished and committed first, so nothing is replayed at the next start.",
    ),
    (
        StopMode.NOW,
        "Immediately",
        "The batch in flight is interrupted; the next start replays it from its first row.",
    ),
)


def stop_mode(sent: Mapping[str, str]) -> StopMode:
    """Return the stop mode that a form requests: graceful, unless it says "now"."""
    return StopMode.NOW if sent.get("mode") == StopMode.NOW else StopMode.GRACEFUL


def neighbours(line: QueryLine) -> list[str]:
    """Return the names of the other queries that should run in the same application."""
    if line.query.application.own:
        return []
    detail = application_detail(line.query.application.name)
    return [
        other.name
        for other in detail.queries
        if other.pk != line.query.pk and other.desired == Desired.RUNNING
    ]


def of(verb: Verb, line: QueryLine, others: list[str]) -> list[str]:
    """Return a verb's consequences, most important first."""
    sentences = {Verb.START: _start, Verb.STOP: _stop, Verb.RESTART: _restart}[verb](line, others)
    return [*while_away(away(line.query.application), verb), *sentences]


def while_away(silent: AwayHost | None, verb: str) -> list[str]:
    """Return when a verb takes effect if the host to which it applies is silent."""
    if silent is None:
        return []
    if silent.alone:
        return [
            f"The worker on host {silent.name} is slow or has stopped; its last heartbeat was at "
            f"{silent.seen_at:%H:%M:%S} UTC. The {verb} takes effect as soon as it works again."
        ]
    return [
        f"Host {silent.name} has not responded since {silent.seen_at:%H:%M:%S} UTC: the {verb} "
        "takes effect once it is back, or is declared gone on the application's page."
    ]


def _start(line: QueryLine, others: list[str]) -> list[str]:
    application = line.query.application.name
    sentences = [f"It starts on revision {line.revision}. {continues(line)}"]
    if line.driver or others:
        sentences.append(f"It joins the running driver of {application}; {_go_on(others)}")
        sentences += _changed_since(line)
    else:
        sentences.append(f"A driver is launched for {application}; this takes a few seconds.")
    if line.phase in FAILED_PHASES:
        sentences.append("Its failure counters are reset and it is retried immediately.")
    if line.trigger.get("kind") in ENDING_TRIGGERS:
        sentences.append("It ends once it has read all available data.")
    return sentences


def _stop(line: QueryLine, others: list[str]) -> list[str]:
    sentences = ["It stays stopped until a user starts it. New data waits in its source."]
    if others:
        sentences.append(f"Its driver stays up: {_go_on(others)}")
    elif line.driver:
        sentences.append(
            f"Nothing else runs in {line.query.application.name}, so its driver ends too."
        )
    return sentences


def _restart(line: QueryLine, others: list[str]) -> list[str]:
    same = line.revision == line.running_revision
    sentences = [
        "The batch in flight is finished and committed first, so nothing is replayed.",
        f"It restarts on revision {line.revision}"
        + (
            ", the one it is running now."
            if same
            else f"; it is running revision {line.running_revision} now."
        ),
    ]
    if others:
        sentences.append(f"Only this query restarts: {_go_on(others)}")
    else:
        sentences.append("It restarts in a new driver process.")
    return sentences + (_changed_since(line) if others else [])


def _changed_since(line: QueryLine) -> list[str]:
    """Return the changes that the running driver does not have: it copied its code at its start."""
    if not line.needs_application_restart:
        return []
    return [
        f"The application's {named(list(line.needs_application_restart))} changed since its "
        f"driver started. Restart {line.query.application.name} to apply it."
    ]


def continues(line: QueryLine) -> str:
    """Return where a start continues from."""
    batch = line.last_run.last_batch if line.last_run else None
    if batch is None and line.progress:
        batch = line.progress.batch_id
    if batch is None:
        return "It has no committed batch yet, so it reads from the beginning of its sources."
    return f"It continues after batch {batch}, from its checkpoint."


def changes_something(verb: Verb, line: QueryLine) -> bool:
    """Return whether the verb would change anything now."""
    wanted = line.query.desired == Desired.RUNNING
    if verb is Verb.START:
        return not wanted or line.phase in FAILED_PHASES
    if verb is Verb.STOP:
        return wanted or line.phase not in STOPPED_PHASES
    return wanted


def short(verb: Verb, line: QueryLine) -> str:
    """Return one line about what the verb will do in a bulk action."""
    if verb is Verb.START:
        return f"Starts on revision {line.revision}. {continues(line)}"
    if verb is Verb.STOP and line.query.desired == Desired.STOPPED:
        return "Already stopping; an immediate stop would interrupt its batch."
    if verb is Verb.STOP:
        return "Stops and stays stopped."
    return f"Finishes its batch, then restarts on revision {line.revision}."


def nothing(verb: Verb, line: QueryLine) -> str:
    """Return why the verb would not change anything."""
    if verb is Verb.START:
        return f"Already set to run ({line.phase.label.lower()})."
    if verb is Verb.STOP:
        return f"Already {line.phase.label.lower()}."
    return "Not set to run; start it instead."


def request_message(verb: Verb, name: str) -> str:
    """Return the message saying that the verb was requested."""
    return f"{name} will {verb}."


def _go_on(others: list[str]) -> str:
    if not others:
        return "no other query is affected."
    return f"{named(others)} {'keeps' if len(others) == 1 else 'keep'} running."


def named(names: list[str]) -> str:
    """Return names as they appear in a sentence: "a", "a and b", "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
