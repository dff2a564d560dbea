"""A question as a run: started, continued, and read as an answer with its receipt."""
