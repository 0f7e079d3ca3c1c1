"""What starts a query, in words."""

from queries.domain.definitions.spec import Schedule


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
            f"{a_day:,} listings a day. An object store counts one request for each 1,000 files of"
            " a listing, and a storage JVM of the application runs on its host meanwhile."
        )
    return f"{a_day:,} listings a day on the application's host."
