"""Measurements of what the product promises, on the simulated GPU."""
