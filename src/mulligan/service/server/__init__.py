"""What only a server has: workflows, schedules, notices, tokens, audit, and stores over HTTP."""
