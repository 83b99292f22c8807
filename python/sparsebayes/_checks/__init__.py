"""What arguments and data have to be: refusals that name the argument and the remedy."""
