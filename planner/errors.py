"""The one error that wrong input raises: it names the field, the value, the bound and the remedy."""

_SHOWN_CHARACTERS = 80


def shorten(value: object, limit: int = _SHOWN_CHARACTERS) -> str:
    """Return repr(value) cut to `limit` characters, so that a hostile value can't flood a message.

    >>> shorten("a" * 200, 10)
    "'aaaaaaaa…"
    """
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class InputError(ValueError):
    """Input that no plan can be made from.

    field : dotted name of what the user gave, in the words of the form or file
    value : what was given
    bound : what is allowed
    remedy : what to do about it

    >>> str(InputError("targets.ttft_s", -1, "must be above 0", "Give seconds, for example 1.0"))
    'targets.ttft_s is -1: must be above 0. Give seconds, for example 1.0.'
    """

    def __init__(self, field: str, value: object, bound: str, remedy: str) -> None:
        self.field = field
        self.value = value
        self.bound = bound.rstrip(".")
        self.remedy = remedy.rstrip(".")
        super().__init__(f"{field} is {shorten(value)}: {self.bound}. {self.remedy}.")
