"""The broker of an edge: sessions, subscriptions, admission, matching and delivery; decisions only, no I/O."""
