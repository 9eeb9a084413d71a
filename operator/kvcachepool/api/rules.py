"""Checks that hold in two places: in pydantic (plan, tests, reconcile) and in the CRD (the API server).

Where a regular expression would be the user's error message, a CEL rule says in words what is expected and
what was found. The CRD then carries no `pattern` for that field: two errors for one mistake help nobody.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from kvcachepool import quantity


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule of an object."""

    rule: str
    message: str
    found: tuple[str, ...] = ()
    """What to show as found: a format such as `%d of %d`, then a CEL expression for each value in it."""
    field: str = ""
    """Path below the object that the error points at, such as `.model.revision`."""
    reason: str = ""
    """FieldValueRequired, FieldValueForbidden, …; FieldValueInvalid when left out."""

    def dump(self) -> dict[str, str]:
        """As it stands in the CRD."""
        entry = {"rule": self.rule, "message": self.message}
        if self.found:
            form, *values = self.found
            # not `+`: the API server rates the cost of joining with string(int) as unbounded
            entry["messageExpression"] = f"{json.dumps(f'{self.message}, found {form}')}.format([{', '.join(values)}])"
        if self.field:
            entry["fieldPath"] = self.field
        if self.reason:
            entry["reason"] = self.reason
        return entry


def rules(*given: Rule) -> dict[str, Any]:
    """`json_schema_extra` with CEL rules."""
    return {"x-kubernetes-validations": [rule.dump() for rule in given]}


@dataclass(frozen=True, slots=True)
class Matching:
    """Metadata for `Annotated[str, …]`: a form that words describe better than its pattern does."""

    pattern: str
    expected: str
    """Completes "must be …"."""
    max_length: int
    address: bool = False
    """Somebody may write a password before an `@` in it, which no message may show."""

    def _check(self, value: str) -> str:
        if len(value) > self.max_length or not re.fullmatch(self.pattern, value):
            found = "one with an @" if self.address and "@" in value else repr(value[:64])
            raise ValueError(f"must be {self.expected}, found {found}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        found = "self.contains('@') ? 'one with an @' : self" if self.address else "self"
        rule = Rule(f"self.matches({json.dumps(self.pattern)})", f"must be {self.expected}", ("%s", found))
        return handler(core) | {"maxLength": self.max_length} | rules(rule)


@dataclass(frozen=True, slots=True)
class Quantity:
    """Metadata for `Annotated[str, …]`: a quantity of bytes, integer or string, kept as written."""

    least: str = "0"

    @property
    def _expected(self) -> str:
        least = "" if self.least == "0" else f" of at least {self.least}"
        return f"must be a size{least} such as 80Gi, 500M or 1e9"

    def _check(self, value: Any) -> Any:
        if not isinstance(value, int | str) or isinstance(value, bool):
            return value  # the string validator that follows refuses it
        text = str(value)
        if not re.fullmatch(quantity.PATTERN, text) or quantity.parse_bytes(text) < quantity.parse_bytes(self.least):
            raise ValueError(f"{self._expected}, found {text[:64]!r}")
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        rule = f"string(self).matches({json.dumps(quantity.PATTERN)})"
        if self.least != "0":
            rule += f" && quantity(string(self)).compareTo(quantity('{self.least}')) >= 0"
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "maxLength": 32,
        } | rules(Rule(rule, self._expected, ("%s", "string(self)")))
