"""Incidents: which troubles are one, when one ends, and who hears of it."""
