"""Schedules and their planned runs."""
