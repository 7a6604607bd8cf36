"""`python -m gdln_jax`: the command `gdln` of this interpreter."""

from gdln_jax.cli import main

main()
