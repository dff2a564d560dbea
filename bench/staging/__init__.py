"""The stages of a step: which functions they are, and the programs that time and count them."""
