"""Schedules: which times are planned, and what each of them gives."""
