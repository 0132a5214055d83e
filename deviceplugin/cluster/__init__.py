"""The agent's side of the API server; never asked inside an RPC, and all of it may be absent."""
