"""Schedules: the planned times, and the outcome of each."""
