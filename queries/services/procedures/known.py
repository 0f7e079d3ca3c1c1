"""The procedures there are, by the verb that asks for them."""

from queries.domain.states import Verb
from queries.services.procedures import clone, preflight, reset, rewind, snapshot, xray
from queries.services.procedures.async_off import ASYNC_OFF
from queries.services.procedures.engine import Procedure
from queries.services.procedures.go_on import GO_ON

PROCEDURES: dict[Verb, Procedure] = {
    Verb.ASYNC_OFF: ASYNC_OFF,
    Verb.GO_ON: GO_ON,
    Verb.SNAPSHOT: snapshot.PROCEDURE,
    Verb.CLONE: clone.PROCEDURE,
    Verb.REWIND: rewind.PROCEDURE,
    Verb.RESET: reset.PROCEDURE,
    Verb.PREFLIGHT: preflight.PROCEDURE,
    Verb.XRAY: xray.PROCEDURE,
}
