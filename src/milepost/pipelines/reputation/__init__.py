"""How far endpoints are to be believed: what they say held against what they did and what others say."""
