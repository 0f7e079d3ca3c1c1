"""Delta and Iceberg tables in real drivers."""
