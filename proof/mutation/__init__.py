"""Whether the tests would notice: the core is changed in one small place, and they are asked. Thousands of times."""
