"""Speed, as ratios measured in one run; each script prints a Markdown table."""
