"""Incidents: which problems belong to one, when it closes, and who is notified."""
