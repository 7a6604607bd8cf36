"""Data: arrays as they are admitted, gated data, schedules, and data packed by active edges."""
