"""Which snapshots stay, and how the others go."""
