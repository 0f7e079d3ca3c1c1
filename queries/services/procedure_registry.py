"""All procedures, by the verb that requests them."""

from queries.domain.states import Verb
from queries.services.checkpoints import clone, reset, rewind, snapshot
from queries.services.kafka.go_on_after_loss import GO_ON
from queries.services.probes import preflight, record_search, xray
from queries.services.procedures.engine import Procedure
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
