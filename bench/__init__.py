"""Measurements against peers and limits; nothing of the product imports them."""
