"""Reads the part of PromQL that alert rules use, by the grammar of Prometheus 2.42 (promql/parser), and raises on the rest."""

import re

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w:])|(?P<duration>\d+[smhdwy](?:\d+[smhdwy])*)(?!\w)"""
    r"""|(?P<name>[a-zA-Z_:][\w:]*)|(?P<text>"(?:[^"\\\n]|\\["\\nrt])*")|(?P<sign>>=|<=|==|!=|=~|!~|[-+*/%^><(){}\[\],=]))"""
)
_AGGREGATIONS = {"sum", "max", "min", "avg", "count"}
# name: types of its arguments, s a number, v an instant vector, m a range
_FUNCTIONS = {"rate": "m", "deriv": "m", "avg_over_time": "m", "histogram_quantile": "sv", "abs": "v", "absent": "v"}
_ORDER = (("or",), ("and", "unless"), ("==", "!=", "<=", "<", ">=", ">"), ("+", "-"), ("*", "/", "%"))


class _Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise ValueError(f"no token of PromQL at {text[at : at + 20]!r}")
            self.tokens.append((found.lastgroup, found.group(found.lastgroup)))
            at = found.end()

    def peek(self) -> tuple[str, str]:
        return self.tokens[0] if self.tokens else ("end", "")

    def take(self, *wanted: str) -> str:
        kind, text = self.peek()
        if text not in wanted and kind not in wanted:
            raise ValueError(f"expected {' or '.join(wanted)}, found {text or kind!r}")
        self.tokens.pop(0)
        return text

    def expression(self, level: int = 0) -> str:
        """Read an expression; returns its type."""
        if level == len(_ORDER):
            return self.operand()
        left = self.expression(level + 1)
        while self.peek()[1] in _ORDER[level]:
            sign = self.take(*_ORDER[level])
            right = self.expression(level + 1)
            if "m" in (left, right) or (level < 2 and "s" in (left, right)) or (level == 2 and (left, right) == ("s", "s")):
                raise ValueError(f"{left} {sign} {right} has no value")
            left = "s" if (left, right) == ("s", "s") else "v"
        return left

    def operand(self) -> str:
        kind, text = self.peek()
        if kind == "number":
            self.take("number")
            return "s"
        if text == "(":
            self.take("(")
            inner = self.expression()
            self.take(")")
            return inner
        name = self.take("name")
        if name in _AGGREGATIONS:
            return self.aggregation()
        if self.peek()[1] == "(":
            return self.call(name)
        return self.selector()

    def aggregation(self) -> str:
        if self.peek()[1] in ("by", "without"):
            self.take("name")
            self.take("(")
            self.take("name")
            while self.peek()[1] == ",":
                self.take(",")
                self.take("name")
            self.take(")")
        self.arguments("v")
        return "v"

    def call(self, name: str) -> str:
        if name not in _FUNCTIONS:
            raise ValueError(f"no function {name}")
        self.arguments(_FUNCTIONS[name])
        return "v"

    def arguments(self, types: str) -> None:
        self.take("(")
        for place, wanted in enumerate(types):
            if place:
                self.take(",")
            given = self.expression()
            if given != wanted:
                raise ValueError(f"an argument is {given}, not {wanted}")
        self.take(")")

    def selector(self) -> str:
        if self.peek()[1] == "{":
            self.take("{")
            while self.peek()[1] != "}":
                self.take("name")
                self.take("=", "!=", "=~", "!~")
                self.take("text")
                if self.peek()[1] != "}":
                    self.take(",")
            self.take("}")
        if self.peek()[1] != "[":
            return "v"
        self.take("[")
        self.take("duration")
        self.take("]")
        return "m"


def check_promql(text: str) -> str:
    """Return an expression's type, s for a number or v for a vector; raises ValueError for what Prometheus would not load."""
    reader = _Reader(text)
    found = reader.expression()
    if reader.tokens:
        raise ValueError(f"unexpected {reader.tokens[0][1]!r}")
    if found == "m":
        raise ValueError("a range has no value of its own")
    return found
