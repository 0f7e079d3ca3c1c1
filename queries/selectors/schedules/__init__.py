"""What is known of schedules and their planned runs."""
