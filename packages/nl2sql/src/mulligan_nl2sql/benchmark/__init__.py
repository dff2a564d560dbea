"""Questions with known answers, asked as users ask them, and counted: how many are right, wrong, refused, failed."""
