"""Rows and what a fit needs of them: designs, sums over chunks, providers, checkpoints."""
