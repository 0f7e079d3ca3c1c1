"""The checks themselves: what `make test` runs where, and what it prints."""
