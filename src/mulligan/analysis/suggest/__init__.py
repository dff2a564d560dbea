"""Pure: learns from stored runs which rules a workflow should have, and which of its rules never helped."""
