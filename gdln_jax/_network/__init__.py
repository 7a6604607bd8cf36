"""Gated networks and the losses that read them."""
