"""The procedures there are, by the verb that asks for them."""

from queries.domain.states import Verb
from queries.services.procedures.engine import Procedure

PROCEDURES: dict[Verb, Procedure] = {}
