"""What the README's performance table is made by."""
