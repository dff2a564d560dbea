"""Hours of a server with workers, small runs and watchers: does anything grow?"""
