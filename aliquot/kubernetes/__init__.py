"""A small client of the API server, for agent, extender and command line."""
