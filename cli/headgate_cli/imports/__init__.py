"""Turn the ways in which people start PySpark jobs today into manifests and a report."""
