"""Random histories of random workflows: the real engine over the real stores, with simulated time and faults."""
