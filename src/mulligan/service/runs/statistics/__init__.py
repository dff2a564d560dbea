"""What many runs together say: what fails now, what steps use, how often recovery works."""
