"""What the tests of pages share: the pages' modules are imported, as in a server that has started.

A page's live fragments are registered by its module, so a test must not depend on an earlier
test's request.
"""

import queries.urls

__all__ = ["queries"]
