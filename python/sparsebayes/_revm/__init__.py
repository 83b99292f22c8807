"""The relevance eigen-vector machines of Kropotov & Vetrov (2007)."""
