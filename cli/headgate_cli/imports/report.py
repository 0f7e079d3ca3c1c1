"""What an import produces: an application's manifest, and a report with each token of the input."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from headgate_cli.imports.rules import MASK, RULES
from headgate_cli.server import Json

#: Shorter secrets are masked only as whole words and not within paths: masking "test" everywhere
#: would damage every text. Still shorter ones only where their name shows what they are.
_SHORT_SECRET, _SHORTEST_SECRET = 8, 4
#: How a manifest refers to a value of the environment.
VALUE = re.compile(r"\$\{values\.([A-Za-z_][\w.-]*)\}")
_S3 = re.compile(r"(?:^|(?<==))s3(?=://)", re.IGNORECASE)
_CHECKPOINT = "a checkpoint with s3:// file names must keep its old path"


def as_s3a(text: str) -> str:
    """Return a value, or `--option=value`, with `s3a://` for `s3://`: Hadoop knows no other."""
    return _S3.sub("s3a", text)


def s3a_remark(about: str) -> str:
    """Return the remark on a converted path, by the names that say what it is."""
    remark = "as s3a://, which Hadoop knows"
    return f"{remark}; {_CHECKPOINT}" if "checkpoint" in about.lower() else remark


@dataclass(frozen=True, slots=True)
class Entry:
    """Tokens of the input, and what became of them: a manifest's field, or the reason why not."""

    tokens: tuple[str, ...]  # as written, with secrets masked
    field: str = ""  # "spec.memory"; "" if not taken over
    reason: str = ""  # why not, and what to do instead; a remark if it was taken over

    def __str__(self) -> str:
        text = " ".join(self.tokens)
        if not self.field or not text:
            place = self.field or "not taken over"
            return f"{place}: {text}: {self.reason}" if text else f"{place}: {self.reason}"
        return f"{self.field}: {text}" + (f" ({self.reason})" if self.reason else "")


@dataclass(slots=True)
class ImportedJob:
    """One job: the application that runs its script, and the report."""

    origin: str  # file and line, or kind and name
    name: str = ""
    spec: Json = field(default_factory=lambda: {"kind": "script"})
    entries: list[Entry] = field(default_factory=list)
    defaults: dict[str, str] = field(default_factory=dict)  # of parameters, by name
    secrets: set[str] = field(default_factory=set)  # values, which are masked wherever they are
    bound: dict[str, str] = field(default_factory=dict)  # the values of `env:NAME`, by name
    resolved: set[str] = field(default_factory=set)  # variables replaced by their values

    def take(
        self, path: str, value: object, *tokens: str, remark: str = "", about: str = ""
    ) -> None:
        """Set a field of the spec, or add to its list or mapping, and report it.

        `about` is the text that says what a path is, if the field's does not.
        A second value of a single field is reported as replaced, as spark-submit does.
        """
        *parents, name = path.split(".") if not path.startswith(("conf.", "env.")) else _pair(path)
        owner = self.spec
        for parent in parents:
            owner = owner.setdefault(parent, {})
        if (converted := _mapped(value, as_s3a)) != value:
            value = converted
            remark = "; ".join(filter(None, (s3a_remark(about or path), remark)))
        if isinstance(value, list):
            present = owner.setdefault(name, [])
            again = name == "arguments"  # their order and number matter
            present += [element for element in value if again or element not in present]
        else:
            if name in owner and owner[name] != value:
                remark = f"replaces {owner[name]}" + (f"; {remark}" if remark else "")
            owner[name] = value
        self.entries.append(Entry(masked(tokens), f"spec.{path}", remark))

    def leave(self, reason: str, *tokens: str) -> None:
        """Report tokens that are not taken over."""
        self.entries.append(Entry(masked(tokens), "", reason))

    def known(self, text: str) -> str:
        """Return a text with the variables replaced whose values the input sets."""
        return VALUE.sub(lambda found: self.defaults.get(found[1], found[0]), text)

    def resolve(self, text: str) -> str:
        """Return a text as `known` does, for the manifest or the report."""
        self.resolved |= self.defaults.keys() & set(VALUE.findall(text))
        return self.known(text)

    def hide(self, value: str) -> None:
        """Mask a secret value wherever it is; of a parameter, its default."""
        for name in VALUE.findall(value):
            self.secrets.add(self.defaults.pop(name, ""))
        if not VALUE.search(value):
            self.secrets.add(value)
        self.secrets = {secret for secret in self.secrets if len(secret) >= _SHORTEST_SECRET}

    def conceal(self, text: str) -> str:
        """Return a text with the known secrets masked."""
        for secret in sorted(self.secrets, key=len, reverse=True):
            whole = r"(?<![\w./-]){}(?![\w./-])" if len(secret) < _SHORT_SECRET else "{}"
            text = re.sub(whole.format(re.escape(secret)), MASK, text)
        return text

    def rename_secret(self, old: str, new: str) -> None:
        """Refer to a secret by another name."""
        refer = {f"env:{old}": f"env:{new}"}
        self.spec = _mapped(self.spec, lambda text: refer.get(text, text))

    def finish(self) -> None:
        """Mask the known secrets in the report and in the manifest, which is then rejected, and
        expand defaults with parameters, as values are substituted once."""
        for name, value in self.parameters.items():
            if (path := as_s3a(value)) != value:
                self.defaults[name] = path
                place = "spec" if VALUE.search(value) else f"values.{name}"
                tokens = masked([f"{name}={value}"])
                self.entries.append(Entry(tokens, place, s3a_remark(f"{name}={value}")))
        self.entries = [
            Entry(tuple(map(self.conceal, entry.tokens)), entry.field, self.conceal(entry.reason))
            for entry in self.entries
        ]
        self.spec = _mapped(self.spec, self.conceal)
        self.defaults = {
            name: value
            for name, value in self.defaults.items()
            if self.conceal(value) == value and not RULES.is_secret(name, value)
        }
        composed = {name: value for name, value in self.defaults.items() if VALUE.search(value)}
        self.resolved |= composed.keys() & self.parameters.keys()
        self.spec = _mapped(
            self.spec,
            lambda text: as_s3a(VALUE.sub(lambda found: composed.get(found[1], found[0]), text)),
        )
        self.defaults = {name: self.defaults[name] for name in self.defaults.keys() - composed}
        if not self.is_runnable:
            self.entries = [
                Entry(entry.tokens, "", "The job is not imported." if entry.field else entry.reason)
                for entry in self.entries
            ]

    @property
    def parameters(self) -> dict[str, str]:
        """Return the `${values.NAME}` in the manifest with their known defaults ("" if none)."""
        names = dict.fromkeys(VALUE.findall(repr(self.spec)))
        return {name: self.defaults.get(name, "") for name in names}

    @property
    def is_runnable(self) -> bool:
        """Return whether the job has a Python program."""
        script = self.spec.get("script")
        return isinstance(script, dict) and "file" in script

    def manifest(self) -> Json:
        """Return the application's manifest; without `desired`, applying it starts nothing."""
        return {
            "apiVersion": "headgate/v1",
            "kind": "Application",
            "metadata": {"name": self.name},
            "spec": self.spec,
        }


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(part, change) for key, part in value.items()}
    if isinstance(value, list):
        return [_mapped(part, change) for part in value]
    return change(value) if isinstance(value, str) else value


def masked(tokens: Iterable[str]) -> tuple[str, ...]:
    """Return tokens without what looks like a secret, by name or by shape."""
    return tuple(RULES.masked(token) for token in tokens)


def application_name(text: str) -> str:
    """Return the closest valid name: lower-case letters, digits, `.`, `_` and `-`."""
    name = re.sub(r"[^a-z0-9._-]+", "-", VALUE.sub(r"\1", text).lower()).strip("-._")
    return name[:80] or "job"


def _pair(path: str) -> list[str]:
    """Split the path of a mapping's key, which may contain dots itself."""
    name, _, key = path.partition(".")
    return [name, key]
