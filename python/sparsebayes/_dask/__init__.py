"""Fits of Dask collections."""
