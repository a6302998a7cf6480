"""The edge as part of a site: what leaves it, what comes from elsewhere, and endpoints that move between edges."""
