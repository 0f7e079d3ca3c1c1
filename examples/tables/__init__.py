"""Recipes for `foreachBatch`: write each batch to a table exactly once."""
