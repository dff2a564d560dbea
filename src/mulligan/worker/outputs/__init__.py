"""What a task reads and returns: outputs, declared files, artifacts, results that are used again."""
