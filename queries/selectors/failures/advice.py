"""Classify a stored failure again, so that its advice is that of this release."""

from queries.domain.failures.categories import Category, FailureSubject
from queries.domain.failures.diagnosis import Classified, classify, classify_exit
from queries.models.history import Failure

_REFUSED: dict[str, str] = {
    Category.LOCK: "held",
    Category.EARLIER_RUN: "own",
    Category.FENCED: "fenced",
    Category.OWNERSHIP: "foreign",
}


def advice_of(failure: Failure) -> Classified:
    """Return the meaning of a stored failure, and what to do about it."""
    if failure.run is None and not (failure.error_class or failure.error_type):
        return classify_exit(
            python=failure.driver.exit_python or "UNKNOWN",
            jvm=failure.driver.exit_jvm or "UNKNOWN",
            oom=failure.category == Category.MEMORY,
            killed=failure.driver.exit_killed,
            log_tail=failure.log_tail,
        )
    return classify(
        error_class=failure.error_class,
        type_name=failure.error_type,
        root_cause=failure.root_cause,
        message=failure.message,
        refused=_REFUSED.get(failure.category, ""),
        in_batch=failure.batch is not None,
        subject=failure.run.subject if failure.run else FailureSubject.APPLICATION,
    )
