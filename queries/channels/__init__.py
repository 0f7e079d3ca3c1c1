"""Notify users outside Headgate: one function per kind of channel, without Django.

The worker sends messages through these functions, and so does `manage.py watch` when the worker and
the database are down.
"""
