"""Ways to notify people outside Headgate: one function per kind of channel, without Django.

The worker sends through them, and so does `manage.py watch` when the worker and the database are
down.
"""
