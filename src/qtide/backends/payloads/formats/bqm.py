"""Binary quadratic models as JSON that any language can write."""

from __future__ import annotations

import math
from typing import Any

from qtide.backends.payloads import document
from qtide.backends.payloads.guard import MOST_VARIABLES
from qtide.backends.payloads.payload import PayloadRefused, is_of

WHAT = "the model"


def recognises(value: object) -> bool:
    """Whether the value is a `dimod.BinaryQuadraticModel`."""
    return is_of(value, "dimod", "BinaryQuadraticModel")


def pack(model: Any) -> bytes:
    """Encode vartype, offset, `[variable, bias]` and `[variable, variable, bias]` terms."""
    for variable in model.variables:
        _check_variable(variable, WHAT)
    fields = {
        "vartype": model.vartype.name,
        "offset": float(model.offset),
        "linear": [[v, float(bias)] for v, bias in model.iter_linear()],
        "quadratic": [[u, v, float(bias)] for u, v, bias in model.iter_quadratic()],
    }
    return document.write(fields, WHAT)


def unpack(data: bytes) -> Any:
    """Decode a `dimod.BinaryQuadraticModel`."""
    fields = document.record(document.read(data, WHAT), WHAT)
    vartype = fields.get("vartype")
    if vartype not in ("SPIN", "BINARY"):
        document.refuse("the model's vartype", f"SPIN or BINARY, not {document.brief(vartype)}")
    offset = document.number(fields.get("offset", 0.0), "the model's offset")
    linear = document.sequence(fields.get("linear"), "the model's linear terms", MOST_VARIABLES)
    quadratic = document.sequence(fields.get("quadratic", []), "the model's quadratic terms")
    return _model(_linear(linear), _quadratic(quadratic), offset, vartype)


def _linear(terms: list[Any]) -> dict[Any, float]:
    biases: dict[Any, float] = {}
    for number, term in enumerate(terms):
        where = f"linear term {number}"
        variable, bias = _parts(term, 2, where)
        _check_variable(variable, where)
        if variable in biases:
            document.refuse(where, f"the variable {document.brief(variable)} has a bias already")
        biases[variable] = _bias(bias, where)
    return biases


def _quadratic(terms: list[Any]) -> list[tuple[Any, Any, float]]:
    checked = []
    for number, term in enumerate(terms):
        where = f"quadratic term {number}"
        first, second, bias = _parts(term, 3, where)
        _check_variable(first, where)
        _check_variable(second, where)
        if first == second:
            document.refuse(where, f"{document.brief(first)} is coupled to itself")
        checked.append((first, second, _bias(bias, where)))
    return checked


def _model(
    linear: dict[Any, float], quadratic: list[tuple[Any, Any, float]], offset: float, vartype: str
) -> Any:
    import dimod

    model = dimod.BinaryQuadraticModel(vartype)
    model.offset = offset
    model.add_linear_from(linear)
    model.add_quadratic_from(quadratic)
    if model.num_variables != len(linear):
        raise PayloadRefused("a quadratic term names a variable that has no linear term")
    if model.num_interactions != len(quadratic):
        raise PayloadRefused("two quadratic terms couple the same two variables")
    return model


def _parts(term: Any, size: int, where: str) -> list[Any]:
    if not isinstance(term, list) or len(term) != size:
        document.refuse(where, f"a list of {size} is expected, not {document.brief(term)}")
    return term


def _check_variable(variable: Any, where: str) -> None:
    """Allow only strings and 64-bit integers: JSON changes other labels, dimod longer integers."""
    if isinstance(variable, str):
        return
    if not isinstance(variable, int) or isinstance(variable, bool) or abs(variable) >= 2**63:
        kinds = "a string or an integer of 64 bits"
        document.refuse(where, f"a variable is {kinds}, not {document.brief(variable)}")


def _bias(bias: Any, where: str) -> float:
    """Return a finite float; the common case avoids a call, as models have many terms."""
    if type(bias) is float and math.isfinite(bias):
        return bias
    return document.number(bias, where)
