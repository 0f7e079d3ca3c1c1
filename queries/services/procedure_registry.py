"""The work of each verb that is more than one step."""

from queries.domain.states import MANY_VERBS, Verb
from queries.services.checkpoints import clone, reset, rewind, snapshot
from queries.services.kafka.go_on_after_loss import GO_ON
from queries.services.probes import preflight, record_search, xray
from queries.services.procedures.bulk_operations import BulkOperation
from queries.services.procedures.engine import Procedure, Work
from queries.services.triggers.async_off import ASYNC_OFF

PROCEDURES: dict[Verb, Procedure] = {
    Verb.ASYNC_OFF: ASYNC_OFF,
    Verb.GO_ON: GO_ON,
    Verb.SNAPSHOT: snapshot.PROCEDURE,
    Verb.CLONE: clone.PROCEDURE,
    Verb.REWIND: rewind.PROCEDURE,
    Verb.RESET: reset.PROCEDURE,
    Verb.PREFLIGHT: preflight.PROCEDURE,
    Verb.XRAY: xray.PROCEDURE,
    Verb.RECORDS: record_search.PROCEDURE,
}
#: All verbs of operations that outlive a worker.
WORK: dict[Verb, Work] = {**PROCEDURES, **dict.fromkeys(MANY_VERBS, BulkOperation())}
