#!/usr/bin/env python
"""Headgate's command line in a checkout: `headgate-server manage`."""

import sys

from headgate_server.__main__ import manage

if __name__ == "__main__":
    manage(sys.argv[1:], name="manage.py")
