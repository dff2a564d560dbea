"""Webhooks: what programs outside send to `/hooks/NAME` becomes an event of a run, or starts a workflow."""
