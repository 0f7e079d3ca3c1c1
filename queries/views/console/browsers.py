"""Readable browser names: a few words from the User-Agent by which users recognize the browser."""

#: (word in the header, name); the first match counts, because other browsers also claim the later
#: words.
_BROWSERS = (
    ("Edg/", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
)
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)


def browser_name(header: str) -> str:
    """Return a name such as "Firefox on Linux"; otherwise the header's first 40 characters."""
    browser = next((name for word, name in _BROWSERS if word in header), "")
    system = next((name for word, name in _SYSTEMS if word in header), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or header[:40] or "Unknown browser"
