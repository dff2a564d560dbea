"""What follows from a fact or a report: retries, routes, items, undo, the end of a round."""
