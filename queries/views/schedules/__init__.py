"""Pages of schedules and their planned runs."""
