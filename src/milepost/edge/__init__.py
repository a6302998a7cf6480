"""The edge: who is connected, what they asked for, what goes to whom and when; decisions only, no I/O."""
