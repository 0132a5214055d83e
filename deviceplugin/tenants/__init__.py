"""Whether containers keep to what they were given."""
