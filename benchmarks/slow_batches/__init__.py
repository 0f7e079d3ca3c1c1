"""How well slow batches are explained."""
