"""`aliquot top`: who has which part of which GPU, and what they do with it."""
