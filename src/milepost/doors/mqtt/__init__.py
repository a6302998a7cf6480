"""The MQTT door: packets to what the corridor is asked, and what it says back to packets."""
