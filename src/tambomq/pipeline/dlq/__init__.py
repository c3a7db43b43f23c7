"""Dead letters: lists, counts, redrives and discards them."""
