"""The multi-class, multi-kernel relevance vector machines of Psorakis et al. (2010)."""
