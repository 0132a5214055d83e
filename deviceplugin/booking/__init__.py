"""Who holds which part of which GPU: decisions over plain values, and the books they end in."""
