"""Texts of users, before they are drawn: matplotlib reads what stands between dollars as TeX."""

from matplotlib.cbook import is_math_text
from matplotlib.mathtext import MathTextParser


def check_text(text: str, name: str) -> str:
    """Return `text` if matplotlib can draw it, else raise `ValueError`; `name` says what it is."""
    if is_math_text(text):
        try:
            MathTextParser("path").parse(text)
        except ValueError as error:
            # The last line is "ParseException: reason  (at char ...)".
            last = str(error).strip().splitlines()[-1]
            why = last.partition(": ")[2].partition("  (at char")[0]
            raise ValueError(
                f"{name} is {text!r}, which matplotlib cannot read as mathematics ({why}); correct "
                r"it, or write \$ for a dollar sign."
            ) from None
    return text
