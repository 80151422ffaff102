"""What trained models say of their own accuracy, on tables: stated errors, true ones, and flags."""
