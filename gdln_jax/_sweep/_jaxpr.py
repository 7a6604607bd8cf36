"""What a traced program contains: random generators, calls into Python, the arrays of its loops."""

from collections.abc import Iterable, Iterator
from typing import Any

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var

# Primitives that draw random numbers, and the type of keys that vmap keeps apart.
_DRAWING, _SAFE = {"random_bits", "random_gamma"}, "key<fry>"
_LOOPS = {"scan", "while"}


def depend_on_batch(program: ClosedJaxpr) -> set[str]:
    """The random generators of a program that give a point other numbers in another batch: all but
    threefry, where they are asked for many keys at once.
    """
    drawing = (e for e in _every_equation(program.jaxpr) if e.primitive.name in _DRAWING)
    keys: list[Any] = [equation.invars[0].aval for equation in drawing]
    return {str(key.dtype) for key in keys if key.ndim} - {_SAFE}


def calls_python(program: ClosedJaxpr) -> bool:
    """Whether a program calls functions of the host."""
    return any("callback" in e.primitive.name for e in _every_equation(program.jaxpr))


def step_bytes(program: ClosedJaxpr) -> int:
    """Bytes of all arrays that a step of the largest innermost loop reads or makes.

    Of a program without loops those that it makes. As traced: the compiler joins operations, and
    keeps fewer arrays.
    """
    own, loop = _bytes(program.jaxpr)
    return loop or own


def _bytes(program: Jaxpr) -> tuple[int, int]:
    """Of the arrays made outside of loops, and of a step of the largest loop inside."""
    own = largest = 0
    for equation in program.eqns:
        inside = list(_inside(equation.params.values()))
        for part in inside:
            here, deeper = _bytes(part)
            if equation.primitive.name not in _LOOPS:
                own, largest = own + here, max(largest, deeper)
            else:
                largest = max(largest, deeper or here + sum(map(_size, part.invars)))
        if not inside:
            own += sum(map(_size, equation.outvars))
    return own, largest


def _size(variable: Var) -> int:
    shape: Any = variable.aval
    return shape.size * shape.dtype.itemsize if hasattr(shape, "size") else 0


def _every_equation(program: Jaxpr) -> Iterator[JaxprEqn]:
    for equation in program.eqns:
        yield equation
        for part in _inside(equation.params.values()):
            yield from _every_equation(part)


def _inside(values: Iterable[object]) -> Iterator[Jaxpr]:
    """The programs among parameters of an equation."""
    for one in values:
        if isinstance(one, list | tuple):
            yield from _inside(one)
        elif isinstance(one, ClosedJaxpr):
            yield one.jaxpr
        elif isinstance(one, Jaxpr):
            yield one
