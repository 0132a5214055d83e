"""`aliquot doctor`: looks where things usually go wrong, and says what to do about it."""
