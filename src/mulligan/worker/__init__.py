"""What runs tasks: processes that are started, watched, killed and read. Nothing here decides what a failure means."""
