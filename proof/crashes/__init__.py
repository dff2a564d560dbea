"""Real processes, killed and cut off and refused by their disk at every single moment, and taken up again."""
