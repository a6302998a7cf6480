"""Proof of coverage: for a message to an area, who was inside, who got it and when, who did not and why."""
