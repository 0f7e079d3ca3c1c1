"""Measure the setup of a bare machine."""
