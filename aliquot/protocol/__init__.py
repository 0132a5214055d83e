"""The values that node side and cluster side exchange through the API server; no I/O."""
