"""What a turn asks for: tasks, timers and child runs, and the rows that a store writes for them."""
