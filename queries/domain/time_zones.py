"""Which time zones a setting can have: IANA names that mean the same on every host."""

from zoneinfo import ZoneInfo, available_timezones

from queries.domain.errors import Problem

#: Files of a host's zone folder that are not zones: its own choice, the default of POSIX, and the
#: value of a system that has not been set up.
_NOT_ZONES = frozenset({"localtime", "posixrules", "Factory"})
#: Folders with copies of all zones, with and without leap seconds; few hosts have them.
_COPIES = ("right/", "posix/")


def zone_problem(field: str, name: str) -> Problem | None:
    """Return what is wrong with the zone in a field; None if it can be used."""
    way_out = 'Use a name such as "Europe/Berlin" or "UTC".'
    if name.startswith(_COPIES):
        way_out = f'Use "{name.partition("/")[2][:100]}".'
    elif name not in _NOT_ZONES:
        try:
            ZoneInfo(name)
        except (KeyError, OSError, ValueError):
            pass
        else:
            return None
    return Problem(field, name[:200], "is not an IANA time zone.", way_out)


def zone_names() -> frozenset[str]:
    """Return the names from which a user chooses."""
    return frozenset(available_timezones() - _NOT_ZONES)
