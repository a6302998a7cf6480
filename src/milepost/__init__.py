"""Milepost: publish/subscribe for things that move."""
