"""Pure: plays workflows in memory with assumed or recorded outcomes, and says what would happen or have happened."""
