"""Learning of kernel parameters."""
