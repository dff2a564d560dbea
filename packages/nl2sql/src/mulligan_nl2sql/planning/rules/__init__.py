"""The planner that needs no model: English questions, answered from the words of the schema, or refused."""
