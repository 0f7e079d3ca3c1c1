"""Define the errors of an operator; each message says what to do."""


class AsyncMapError(Exception):
    """The base class of all errors that `headgate_async` itself raises."""


class BadArgument(AsyncMapError, ValueError):
    """An argument of `map_async` is invalid."""


class CallTimedOut(AsyncMapError, TimeoutError):
    """A call did not return within its timeout and was cancelled."""


class CallStuck(AsyncMapError, TimeoutError):
    """A call continued after its cancellation, so its key's order can no longer be guaranteed."""


class BadResult(AsyncMapError, TypeError):
    """The function returned a value that is not a row of the schema."""
