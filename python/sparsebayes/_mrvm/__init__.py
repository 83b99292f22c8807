"""The multi-class multi-kernel machines of Psorakis et al. (2010)."""
