"""Which notices follow from the facts of a turn. Pure, and the same whenever it is asked again."""
