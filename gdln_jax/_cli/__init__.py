"""The `gdln` command."""
