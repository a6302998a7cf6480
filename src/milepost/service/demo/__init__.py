"""`milepost demo`: a city in which all of Milepost runs, as real processes, and is judged."""
