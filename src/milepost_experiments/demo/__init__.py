"""`milepost demo`: a simulated city in which all of Milepost runs, as real processes, and is verified."""
