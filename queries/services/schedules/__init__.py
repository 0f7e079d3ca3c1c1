"""Start queries at the times that their schedules plan."""
