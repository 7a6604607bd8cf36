"""gdln_jax: gated deep linear networks in JAX. The table of contents, in the order of the workflow.

A name is imported from its room when it is first used (PEP 562), so that `import gdln_jax` costs
nothing. To add a name: one line in `_ROOMS` and one under `TYPE_CHECKING`.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from gdln_jax import recipes as recipes
    from gdln_jax._citation import citation as citation
else:
    _ROOMS = {
        # room: the names it hands on, () for a namespace that users type
        "recipes": (),
        "_citation": ("citation",),
    }
    _ROOM_OF = {name: room for room, names in _ROOMS.items() for name in (names or (room,))}
    __all__ = list(_ROOM_OF)

    def __getattr__(name):
        if name not in _ROOM_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        room = importlib.import_module(f"{__name__}.{_ROOM_OF[name]}")
        value = getattr(room, name) if name in _ROOMS[_ROOM_OF[name]] else room
        globals()[name] = value
        return value

    def __dir__():
        return [*__all__, "__version__"]

    class _Contents(ModuleType):
        """Where a room and the name it hands on are spelled alike (`sweep`), the name wins."""

        def __setattr__(self, name, value):
            if isinstance(value, ModuleType) and name in _ROOMS.get(name, ()):
                value = getattr(value, name)
            super().__setattr__(name, value)

    sys.modules[__name__].__class__ = _Contents
