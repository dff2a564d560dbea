"""The routes by area: what each takes, which area of `Service` it asks, and what it answers."""
