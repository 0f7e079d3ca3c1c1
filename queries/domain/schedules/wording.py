"""What starts a query, and why a planned time did not, in words."""

from datetime import datetime

from queries.domain.counts import counted
from queries.domain.definitions.spec import Schedule
from queries.domain.schedules.states import SKIPPED_WORDS, SkipReason


def when_words(schedule: Schedule) -> str:
    """Return when a schedule starts its query, as "after each completed run of orders"."""
    if schedule.after:
        if schedule.after_end == "any":
            return f"after each run of {schedule.after}, whatever its outcome"
        return f"after each completed run of {schedule.after}"
    if schedule.files:
        return (
            f"{schedule.quiet_s} s after the last new file in {schedule.files},"
            f" which is listed every {schedule.look_s} s"
        )
    return f"{schedule.cron} in {schedule.time_zone}"


def listing_cost(schedule: Schedule) -> str:
    """Return what listing the folder costs, as one sentence."""
    a_day = round(86_400 / schedule.look_s)
    if "://" in schedule.files and not schedule.files.startswith("file:"):
        return (
            f"{counted(a_day, 'listing')} a day. An object store counts one request for each 1,000 "
            "files of a listing, and a storage JVM of the application runs on its host meanwhile."
        )
    return f"{counted(a_day, 'listing')} a day on the application's host."


def skipped_words(
    why: SkipReason, times: int, first: datetime | None, last: datetime, reason: str = ""
) -> str:
    """Return why a planned time was skipped; of several, how many and from when to when."""
    reason = reason or SKIPPED_WORDS[why]
    if first is None:
        return reason
    verb = "missed" if why is SkipReason.MISSED else "skipped"
    span = f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
    return f"{counted(times, 'due time was,due times were')} {verb}, {span}. {reason}"
