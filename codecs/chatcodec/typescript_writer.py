"""A tool as a flat TypeScript declaration, written as harmony_xml's chat template writes it.

Rules of this module: `declare` is the template's macro `render_tool_declaration`, with all its oddities; what the macro
fails at is a ValueError.  The way back is in `typescript`.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

from .kept import kept_by_content

_quoted = json.JSONEncoder(ensure_ascii=False).encode
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
SHOWN_ALONE = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}


def declare_once(function: Mapping[str, Any]) -> str:
    """The declaration of a tool's function that is not kept."""
    name, description, parameters = (function.get(key) for key in ("name", "description", "parameters"))
    if not isinstance(name, str):
        raise ValueError(f"the name of a tool must be a string, not {name!r}")
    if is_object(parameters) and parameters.get("type") == "string" and not parameters.get("properties"):
        return f"## {name}\n\n{description or ''}"
    parts: list[str] = []
    if description:
        if not isinstance(description, str):
            raise ValueError(f"the description of tool {name!r} must be a string, not {description!r}")
        parts += ("// ", description.replace("\n", "\n// "), "\n")
    parts += ("type ", name, " = (_: ")
    try:
        _type(parameters, 0, parts)
    except RecursionError:
        raise ValueError(f"the parameters of tool {name!r} are nested too deep") from None
    except (TypeError, AttributeError) as error:
        raise ValueError(f"the parameters of tool {name!r} cannot be declared: {error}") from None
    parts.append(") => any;")
    return "".join(parts)


declare = kept_by_content(declare_once)
"""The declaration of a tool's function.  Raises ValueError where the template fails too."""


def is_object(value: Any) -> TypeGuard[Mapping[str, Any]]:
    return type(value) is dict or isinstance(value, Mapping)


def _is_list(value: Any) -> TypeGuard[Iterable[Any]]:
    """Whether a value is what the template takes for a list: objects count, as the list of their keys."""
    return type(value) is list or isinstance(value, (list, tuple, Mapping))


def _type(schema: Any, indent: int, parts: list[str]) -> None:
    """A schema as a type.  `indent` is what the members of an object stand behind."""
    if not is_object(schema):
        parts.append("any")
        return
    kind, enum = schema.get("type"), schema.get("enum")
    if _is_list(schema.get("oneOf")):
        pad = "\n" + " " * indent + " | "
        for variant in schema["oneOf"]:
            parts.append(pad)
            _nullable_type(variant, indent + 3, parts)
            if is_object(variant):
                _remark(variant, variant.get("description"), parts, bare=False)
    elif kind == "string" and enum and _is_list(enum):
        parts.append(" | ".join(_quoted(member) for member in enum if isinstance(member, str)) or "string")
    elif kind == "object":
        _object(schema, " " * indent, indent, parts)
    elif kind == "array":
        if schema.get("items"):
            _type(schema["items"], indent, parts)
            parts.append("[]")
        else:
            parts.append("Array<any>")
    elif isinstance(kind, str):
        parts.append(SHOWN_ALONE.get(kind, "any"))
    elif _is_list(kind):
        parts.append(" | ".join("number" if name == "integer" else name for name in kind if isinstance(name, str)) or "any")
    else:
        parts.append("any")


def _nullable_type(schema: Any, indent: int, parts: list[str]) -> None:
    start = len(parts)
    _type(schema, indent, parts)
    if is_object(schema) and schema.get("nullable") and "null" not in "".join(parts[start:]):
        parts.append(" | null")


def _object(schema: Mapping[str, Any], pad: str, indent: int, parts: list[str]) -> None:
    if isinstance(schema.get("description"), str):
        parts += (pad, "// ", schema["description"], "\n")
    parts.append("{\n")
    required = schema.get("required") or ()
    if isinstance(required, (list, tuple)):  # often as long as the properties
        required = {name for name in required if isinstance(name, str)}
    for name, spec in (schema.get("properties") or {}).items():
        shown = f"{pad}{name}:" if name in required else f"{pad}{name}?:"
        if not isinstance(name, str):
            raise TypeError(f"the name of a property must be a string, not {name!r}")
        if not is_object(spec):
            parts += (shown, " any,\n")
            continue
        _notes(spec, pad, parts)
        if _is_list(spec.get("oneOf")):
            _choice(spec, shown, pad, indent, parts)
        else:
            parts += (shown, " ")
            _nullable_type(spec, indent + 4, parts)
            parts += (", // default: ", _default(spec, bare=True), "\n") if "default" in spec else (",\n",)
    parts += (pad, "}")


def _notes(spec: Mapping[str, Any], pad: str, parts: list[str]) -> None:
    """The comments above a property that all kinds have."""
    if isinstance(spec.get("title"), str):
        parts += (pad, "// ", spec["title"], "\n", pad, "//\n")
    if isinstance(spec.get("description"), str) and "oneOf" not in spec:
        parts += (pad, "// ", spec["description"], "\n")
    examples = spec.get("examples")
    if examples and _is_list(examples):
        parts += (pad, "// Examples:\n")
        for example in examples:
            if isinstance(example, str):
                parts += (pad, '// - "', example, '"\n')


def _choice(spec: Mapping[str, Any], shown: str, pad: str, indent: int, parts: list[str]) -> None:
    """A property's own oneOf.  A description that two places would show is shown once, or not at all."""
    variants, description = list(spec["oneOf"]), spec.get("description")
    if not isinstance(description, str):
        description = None
    first = variants[0].get("description") if variants and is_object(variants[0]) else None
    noted = bool(description) and description != first
    if noted:
        parts += (pad, "// ", str(description), "\n")
    if "default" in spec:
        parts += (pad, "// default: ", _default(spec, bare=True), "\n")
    parts += (shown, "\n")
    for number, variant in enumerate(variants):
        parts += (pad, " | ")
        _nullable_type(variant, indent + 3, parts)
        if is_object(variant):
            text = variant.get("description")
            _remark(variant, None if text == description or (noted and not number) else text, parts, bare=True)
        parts.append("\n")
    parts += (pad, ",\n")


def _remark(variant: Mapping[str, Any], description: Any, parts: list[str], *, bare: bool) -> None:
    """The comment behind a variant."""
    if isinstance(description, str):
        parts += (" // ", description)
        if "default" in variant:
            parts += (" default: ", _default(variant, bare=bare))
    elif "default" in variant:
        parts += (" // default: ", _default(variant, bare=bare))


def _default(schema: Mapping[str, Any], *, bare: bool) -> str:
    default, enum = schema["default"], schema.get("enum")
    if not isinstance(default, str):
        return _compact(default)
    return default if bare and enum and _is_list(enum) else f'"{default}"'
