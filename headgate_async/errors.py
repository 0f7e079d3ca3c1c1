"""The errors of an operator; each message says what to do."""


class AsyncMapError(Exception):
    """The base of everything that `headgate_async` itself raises."""


class BadArgument(AsyncMapError, ValueError):
    """An argument of `map_async` that is invalid."""


class CallTimedOut(AsyncMapError, TimeoutError):
    """A call did not return within its timeout and was cancelled."""


class CallStuck(AsyncMapError, TimeoutError):
    """A call continued after its cancellation, so the order of its key can no longer be kept."""


class BadResult(AsyncMapError, TypeError):
    """The function returned something that is not a row of the schema."""
