"""Live pages: reduced dynamics that a browser integrates while one drags, in one HTML file."""
