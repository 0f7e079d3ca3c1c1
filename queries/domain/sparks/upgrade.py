"""Predict what another version of Spark does with a checkpoint, and whether there is a way back.

Spark promises that a newer version continues a checkpoint of an older one, but not the reverse. If
the older version is known to fail, or to continue with wrong values, the way back is refused. What
the logs alone cannot show is a doubt, which a preflight with the older version resolves.

Source: checkpoints with aggregations, deduplication, stream-stream joins and transformWithState,
written by 4.3.0 and 4.2.1, continued by 4.2.1 and 4.1.4, and compared with a batch computation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from queries.domain.errors import NotAllowed
from queries.domain.sparks import SPARKS, Spark, is_older
from queries.domain.sparks.conditions import conditions_between
from queries.domain.sparks.pinned import (
    CHECKSUM,
    ENCODING,
    JOIN_FORMAT,
    KEY_ORDER,
    MERGE,
    PINS,
    PROVIDER,
    pinned_by,
)

#: Names of state operators in a checkpoint's metadata.
_JOIN = "symmetricHashJoin"
_DEDUPLICATES = frozenset({"dedupe", "dedupeWithinWatermark"})
_PROCESSOR = "transformWithState"  # prefix of the names, which differ between Scala and Python
#: Size up to which Scala's sets keep their order, and so the order of the columns in the key.
_IN_ORDER = 4


WAY_OUT = (
    "Keep the newer Spark; or rewind the query to a snapshot or batch from before the upgrade, or "
    "reset it."
)


#: Why there is no way back to what wrote a checkpoint before Headgate ran the query.
UNKNOWN_SPARK = "The checkpoint was written by Spark {}, which Headgate does not run."


class NoWayBack(NotAllowed):
    """The version of Spark cannot continue the checkpoint."""

    code = "no-way-back"


@dataclass(frozen=True, slots=True)
class Written:
    """What the newest batch of a checkpoint says about the version that wrote it."""

    offsets: str = "v1"  # version of the offset log's format
    commits: str = "v1"  # version of the commit log's format
    conf: Mapping[str, str] = field(default_factory=dict)  # pinned configuration
    operators: tuple[str, ...] = ()  # names of the state operators, "" if unknown

    @property
    def spark(self) -> Spark | None:
        """Return the version that wrote the batch, inferred from the keys that it pinned.

        None if they do not tell: 4.0 and 4.1 pin the same keys.
        """
        releases = {PINS[key].since for key in self.conf if key in PINS} - {SPARKS[0]}
        return max(releases, key=SPARKS.index, default=None)

    @property
    def versions(self) -> str:
        """Return the versions that may have written the batch, to follow "Spark" in a sentence.

        Source: 4.0 was the first to pin the encoding of the state (SPARK-50526), and 4.1 added no
        key. A log without any of these keys is continuous, or not Spark's.
        """
        if self.spark is not None:
            return self.spark
        if not self.conf.keys() & PINS.keys():
            return "of an unknown version"
        return "4.0 or 4.1" if ENCODING in self.conf else "3.5 or earlier"

    @property
    def back(self) -> Spark | None:
        """Return the version that would continue the batch as before; None if none is here."""
        return self.spark or (SPARKS[0] if ENCODING in self.conf else None)


@dataclass(frozen=True, slots=True)
class Pinning:
    """One pinned key whose presence differs between two versions."""

    key: str
    value: str  # "" for the session's


def pins_added(written: Written, spark: Spark) -> tuple[Pinning, ...]:
    """Return the keys that a version will pin from now on, each with the value that it will use.

    The value stands for the behaviour of older versions; it is not the default of a new checkpoint.
    """
    missing = sorted(pinned_by(spark) - written.conf.keys())
    return tuple(Pinning(key, PINS[key].old) for key in missing)


def pins_lost(written: Written, spark: Spark) -> tuple[Pinning, ...]:
    """Return the keys that a version drops from the log, with the values that are lost.

    After a later return to a version that has these keys, the behaviour is that of older versions.
    """
    keys = sorted((written.conf.keys() & PINS.keys()) - pinned_by(spark))
    return tuple(Pinning(key, written.conf[key]) for key in keys)


def cannot_go_back(written: Written, spark: Spark) -> str:
    """Return as a sentence why a version cannot continue a checkpoint; "" if it may be able to."""
    for since, reason in (*_logs(written), *_state(written)):
        if is_older(spark, since):
            return f"Spark {spark} cannot continue this checkpoint: {reason}"
    return ""


def refuse_no_way_back(written: Written, spark: Spark, query: str) -> None:
    """Raise `NoWayBack` if a version cannot continue a query's checkpoint."""
    if refused := cannot_go_back(written, spark):
        raise NoWayBack(f"{query}: {refused}", way_out=WAY_OUT)


def doubts_about_going_back(written: Written, spark: Spark) -> tuple[str, ...]:
    """Return, as sentences, what only a preflight with the older version can show."""
    doubts = []
    by_order = written.conf.get(KEY_ORDER) == "true"
    if is_older(spark, PINS[KEY_ORDER].since) and by_order and _DEDUPLICATES & {*written.operators}:
        doubts.append(
            f"Spark {spark} rejects the state if the query removes duplicates by more than "
            f"{_IN_ORDER} columns, because it orders these columns differently. Run a preflight "
            "first."
        )
    return tuple(doubts)


def _logs(written: Written) -> list[tuple[Spark, str]]:
    findings: list[tuple[Spark, str]] = []
    if written.offsets != "v1":
        findings.append(
            ("4.2", f"its offset log has format {written.offsets}, which names sources.")
        )
    if written.commits == "v3":
        findings.append(("4.2", "its commit log has format v3, which names sinks."))
    return findings


def _state(written: Written) -> list[tuple[Spark, str]]:
    """Return each property of the state that older versions cannot read, with the first that can.

    Stateless queries pin the same configuration, without any effect.
    """
    conf, operators = written.conf, written.operators
    findings: list[tuple[Spark, str]] = []
    if operators and conf.get(CHECKSUM) == "true":
        findings.append(("4.2", f"its state has a checksum in each row ({CHECKSUM}=true)."))
    if _JOIN in operators and conf.get(JOIN_FORMAT) == "4":
        findings.append(("4.3", f"the state of its join has format 4 ({JOIN_FORMAT})."))
    merges = any(name.startswith(_PROCESSOR) for name in operators)
    if merges and "RocksDB" in conf.get(PROVIDER, "") and conf.get(MERGE, "1") != "1":
        findings.append(
            ("4.2", f"lists in its state are stored in version {conf[MERGE]} ({MERGE}).")
        )
    return findings


def as_json(old: Written, new: Written, spark: Spark, back: Spark | None) -> dict[str, Any]:
    """Return what a change of version does to a checkpoint, in JSON form.

    `old` is the checkpoint before; `new` a copy on which `spark` has run, or `old` if it has not.
    `back` is the version that ran on it until now; None if only the checkpoint can tell ("from"),
    which need not be a version that can be chosen here ("back" is "" then).
    """
    back, origin = back or old.back, back or old.versions
    oldest = back or SPARKS[0]
    return {
        "from": origin,
        "back": back or "",
        "to": spark,
        "conditions": list(conditions_between(oldest, spark)),
        "added": [[pinning.key, pinning.value] for pinning in pins_added(old, spark)],
        "lost": [[pinning.key, pinning.value] for pinning in pins_lost(old, spark)],
        "format": [
            [what, before, after]
            for what, before, after in (
                ("offset log", old.offsets, new.offsets),
                ("commit log", old.commits, new.commits),
                ("state operators", ", ".join(old.operators), ", ".join(new.operators)),
            )
            if before != after
        ],
        "refused": cannot_go_back(old, spark),
        "doubts": list(doubts_about_going_back(old, spark)),
        "no_way_back": cannot_go_back(new, back) if back else UNKNOWN_SPARK.format(origin),
        "back_doubts": list(doubts_about_going_back(new, oldest)),
        "back_lost": [[pinning.key, pinning.value] for pinning in pins_lost(new, oldest)],
    }
