"""Further rounds and forks: what runs again, and what is kept."""
