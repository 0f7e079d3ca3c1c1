"""The distribution `headgate-server`: its version, its command, and its file locations."""

__version__ = "0.1.0"
