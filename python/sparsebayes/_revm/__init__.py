"""The relevance eigenvector models of Kropotov & Vetrov (2007)."""
