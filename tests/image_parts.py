"""The image step and what is around it, for tests that compare single steps.

`train_images` shows whole runs only: a step is compared with one written by hand, lowered for other
machines, and stopped in the middle. Private to `gdln_jax.images`, so that it is imported here only.
"""

from gdln_jax.images import _checkpoint, _evaluate, _step, _training

__all__ = ["_checkpoint", "_evaluate", "_step", "_training"]
