"""The tables by which an import decides.

`make docs-reference` generates `rules.json` from the server's own tables, and a test holds it
equal, so that an import without a server decides as a save would. `replaced.toml` is written by
hand: what replaces the options and fields of today's jobs.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

MASK = "••••••"
#: Names and texts that are secrets on a command line, in addition to the server's: short options
#: such as `-p`, users in an address without a password, webhooks, any text after `Bearer`.
_SHORT_NAME = re.compile(r"(?:^|[._-])(?:auth|pw)$|^(?:p|pass|creds?|credentials?)$", re.IGNORECASE)
_NO_SECRET = re.compile(r"\d{1,5}|true|false", re.IGNORECASE)
_ADDRESSES = (
    re.compile(r"(https?://)([^\s/@]+)(@)"),
    re.compile(r"(\b(?:[Bb]earer|BEARER|Basic|BASIC)\s+)([^\s\"',;&)]+)()"),
    re.compile(
        r"((?<![A-Za-z0-9])[Pp][Ww][\"']?\s*[=:]\s*[\"']?)(?!env:|file:|\$)([^\s\"',;&)}]+)()"
    ),
    re.compile(r"(https://hooks\.slack\.com/services/|/api/webhooks/)(\S+)()"),
)
#: An option and the word after it, in a text.
_OPTION = re.compile(
    r"(?<![\w-])(?P<option>-{1,2}[\w.-]+)\s+(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"'-]\S*)"
)
_ANY_OPTION = re.compile(r"-{1,2}([\w.-]+)")
_USER = re.compile(r"[^\s:/]+:(?!//)\S+")


@dataclass(frozen=True)
class Rules:
    """The tables in `rules.json`, and those in `replaced.toml`."""

    allowed: str  # keys of Spark's configuration that an application may set
    reserved: list[list[str]]  # patterns of keys that it may not, with the way out
    class_name: str  # matches a JVM class in a value
    safe_classes: str
    secret_name: str
    secret_values: list[list[str]]  # pattern before the secret, of it, after it
    about_a_secret: str  # keys that describe a secret but do not contain it
    reserved_environment: str
    connector_settings: dict[str, str]  # setting that a connector makes itself -> connector
    sparks: list[str]  # "4.1", the oldest first
    replaced: dict[str, dict[str, Any]]

    @cached_property
    def options_by_key(self) -> dict[str, str]:
        """Return the option of spark-submit that means the same as a configuration key."""
        options = self.replaced["options"].items()
        return {row["conf"]: option for option, row in options if "conf" in row}

    @cached_property
    def _shapes(self) -> list[re.Pattern[str]]:
        by_name = rf"(?:{self.secret_name})[\w.\-]*[\"']?\s*[=:]\s*[\"']?"
        return [
            *(
                re.compile(f"({before})({secret})({after})")
                for before, secret, after in self.secret_values
            ),
            *_ADDRESSES,
            re.compile(rf"({by_name})(?!(?:env|file):|\$)([^\s\"',;&)}}]+)()", re.IGNORECASE),
        ]

    def takes_value(self, option: str) -> bool:
        """Return whether the next word is the value of an option of spark-submit."""
        known = option in self.replaced["options"] or option in ("--conf", "-c")
        return known and option not in self.replaced["flags"]["names"]

    def way_out(self, table: str, path: str, value: str = "") -> str:
        """Return what replaces a field, by its value, or by the longest known part of its path."""
        rows, parts = self.replaced[table], path.split(".")
        paths = (".".join(parts[:length]) for length in range(len(parts), -1, -1))
        known = [name for name in (f"{path}={value}", *paths) if name in rows]
        return str(rows[known[0]])

    def masked(self, text: str) -> str:
        """Return a text with everything that looks like a secret masked."""
        for shape in self._shapes:
            text = shape.sub(rf"\g<1>{MASK}\g<3>", text)
        return _OPTION.sub(
            lambda found: (
                f"{found['option']} {MASK}" if self.announces(*found.groups()) else found[0]
            ),
            text,
        )

    def announces(self, word: str, following: str) -> bool:
        """Return whether a word makes the next one a secret: `--token x`, `-u me:x`, `Bearer x`."""
        if not following or re.fullmatch("Bearer|Basic", word, re.IGNORECASE):
            return bool(following) and not following.startswith("-")
        option = _ANY_OPTION.fullmatch(word)
        if option and option[1] in ("u", "user", "proxy-user") and _USER.fullmatch(following):
            return True
        return bool(option) and self.is_secret(word.lstrip("-"), following)

    def shown(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command without its secrets and without texts for a shell."""
        pairs = zip(("", *words), words, strict=False)
        return [
            MASK if before in ("-c", "--key") or self.announces(before, word) else self.masked(word)
            for before, word in pairs
        ]

    def outline(self, words: Sequence[str]) -> list[str]:
        """Return a command's name, and its words only if they are harmless for any command."""
        shell = self.replaced["shell"]
        count = next((n for n, word in enumerate(words) if word not in shell["keywords"]), 0)
        if words[count:] and words[count] in shell["harmless"]:
            return self.shown(words)
        count += bool(words[count:] and re.fullmatch(r"[\w./+-]+|\[\[?", words[count]))
        return [*words[:count], *[MASK] * bool(words[count:])]

    def secrets_in(self, text: str) -> set[str]:
        """Return what looks like a secret in a text."""
        return {found[2] for shape in self._shapes for found in shape.finditer(text)}

    def is_secret(self, key: str, value: str) -> bool:
        """Return whether a value is a secret, by its key's name or by its shape."""
        if not value or re.fullmatch(r"(?:env|file):[A-Za-z0-9_.\-]+", value):
            return False
        return self.names_secret(key, value) or self.masked(value) != value

    def names_secret(self, key: str, value: str = "") -> bool:
        """Return whether a key's value is a secret, whatever it looks like."""
        if re.search(self.about_a_secret, key, re.IGNORECASE):
            return False
        if re.search(self.secret_name, key, re.IGNORECASE):
            return True
        return bool(_SHORT_NAME.search(key)) and not _NO_SECRET.fullmatch(value)

    def why_not(self, key: str, value: str) -> str:
        """Return why an application cannot set a key of Spark's configuration; "" if it can."""
        for pattern, way_out in self.reserved:
            if re.fullmatch(pattern, key):
                return way_out or "It is reserved for Headgate."
        if not re.fullmatch(self.allowed, key):
            return "This is not a setting that definitions can change."
        for name in re.findall(self.class_name, value):
            safe = re.fullmatch(self.safe_classes, name) or key.startswith("spark.sql.catalog.")
            if not safe:
                return f"It loads {name}. A connector provides the classes for its formats."
        return ""

    def connectors_of(self, key: str, value: str) -> list[str]:
        """Return the connectors that make a whole setting themselves; none if none do."""
        names = [self.connector_settings.get(f"{key}={part.strip()}") for part in value.split(",")]
        return sorted({name for name in names if name}) if all(names) else []

    def connector(self, coordinate: str) -> str:
        """Return the connector that replaces a Maven coordinate; "" if there is none."""
        group, _, rest = coordinate.partition(":")
        artifact = re.sub(r"(_\d\.\d)?_2\.1\d$|-hadoop\d$", "", rest.partition(":")[0])
        artifact = re.sub(r"-runtime-\d\.\d$", "-runtime", artifact)
        return str(self.replaced["connectors"].get(f"{group}:{artifact}", ""))


def _read() -> Rules:
    folder = files("headgate_cli.imports")
    tables: dict[str, Any] = json.loads(folder.joinpath("rules.json").read_text("utf-8"))
    return Rules(
        **tables, replaced=tomllib.loads(folder.joinpath("replaced.toml").read_text("utf-8"))
    )


RULES = _read()
