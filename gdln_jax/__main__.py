"""`python -m gdln_jax`: the command `gdln` of this interpreter."""

from gdln_jax._cli.signals import leaving


def main() -> None:
    """Run the command; a signal that comes during its imports ends it as one that comes later."""
    with leaving():
        from gdln_jax._cli.main import main as run

        run()


if __name__ == "__main__":
    main()
