"""How much a worker may take, and for how long: resources, limits, trouble of the machine."""
