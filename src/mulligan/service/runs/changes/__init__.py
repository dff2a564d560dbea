"""Start runs and change them: retry, fork, cancel, pause; what would follow, and what is refused."""
