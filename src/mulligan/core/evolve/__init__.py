"""What each fact changes in the state. A replay of a log runs this package alone."""
