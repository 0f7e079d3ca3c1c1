"""What pages call a browser: the few words of its User-Agent that its owner knows it by."""

#: The word in the header, the name; the first that is found counts, as later ones pretend more.
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
    """Return "Firefox on Linux" and the like; of an unknown one the header's first 40 letters."""
    browser = next((name for word, name in _BROWSERS if word in header), "")
    system = next((name for word, name in _SYSTEMS if word in header), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or header[:40] or "Unknown browser"
