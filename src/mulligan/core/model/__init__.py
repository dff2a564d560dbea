"""The data of the core: workflow definitions, failures, events and reports. Plain values that decide nothing."""
