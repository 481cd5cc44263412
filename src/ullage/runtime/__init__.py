"""Runtime: what runs inside the user's program and manages its GPU memory."""
