"""C headers of fitted models."""
