"""Ways to tell people outside: one function per kind of channel, without Django.

The worker sends through them, and so does `manage.py watch` where no worker and no database work.
"""
