#!/usr/bin/env python
"""Headgate's command line."""

import os
import sys

if __name__ == "__main__":
    os.umask(0o077)  # what Headgate and its programs write is its account's alone
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
