"""Pickles msgspec structs, dataclasses, named tuples and typed dicts by value.

cloudpickle recreates a class in two steps, so that the class may refer to itself: first an empty
class, then its attributes. This is not enough for classes from which serdes are made:

- The fields of a `msgspec.Struct` are laid out when the class is created. Therefore, the first step
  includes the names of the fields, their defaults, and the options of the struct.
- String annotations (`from __future__ import annotations`, or a class that refers to itself) are
  resolved in the module of the class, which does not exist in a worker. Therefore, they are
  resolved before the class is pickled.
- msgspec caches compiled type information in a class from which a serde was made. The cache cannot
  be pickled; the worker's msgspec rebuilds it.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from functools import partial
from typing import Any, Final

import msgspec

if sys.version_info >= (3, 14):
    import annotationlib

#: The options of a struct's metaclass that are attributes of `__struct_config__`.
_STRUCT_OPTIONS: Final = (
    *("frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults"),
    *("forbid_unknown_fields", "weakref", "dict", "cache_hash", "tag", "tag_field"),
)
#: The attribute in which msgspec caches type information of an enum, dataclass or typed dict.
_CACHE: Final = "__msgspec_cache__"
_POST_INIT: Final = "__post_init__"
#: The attributes with unevaluated annotations in Python 3.14 (PEP 649), useless in a worker.
_LAZY_ANNOTATIONS: Final = ("__annotate__", "__annotate_func__", "__annotations_cache__")

#: The attributes of a type's constraints, as in `Annotated[int, msgspec.Meta(ge=0)]`.
_META: Final = (
    *("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length"),
    *("title", "description", "examples", "extra_json_schema", "extra"),
)

#: The return value of a pickler's `reducer_override` for a class that is pickled by value.
Reduced = tuple[Any, ...]


def reduce_data_class(cls: type, reduced: Reduced) -> Reduced:
    """Add the fields and types of a data class to cloudpickle's reduced value.

    The value consists of a constructor, its arguments, which begin with the metaclass, and the
    state, which begins with the class's dictionary.
    """
    make, arguments, (variables, slots), *rest = reduced
    variables = {name: value for name, value in variables.items() if name != _CACHE}
    annotations = _annotations(cls) if _is_data(cls) else {}
    if annotations:
        for name in _LAZY_ANNOTATIONS:
            variables.pop(name, None)
        variables["__annotations__"] = _resolved(cls, annotations)
    if isinstance(cls, msgspec.StructMeta):
        arguments = (partial(new_struct, *_fields(cls), _options(cls)), *arguments[1:])
    return (make, arguments, (variables, slots), *rest)


def reduce_meta(meta: msgspec.Meta) -> Reduced:
    constraints = {
        name: getattr(meta, name) for name in _META if getattr(meta, name, None) is not None
    }
    return partial(msgspec.Meta, **constraints), ()


def new_struct(
    fields: dict[str, dict[str, Any]],
    has_post_init: bool,
    options: dict[str, Any],
    name: str,
    bases: tuple[type, ...],
    namespace: dict[str, Any],
) -> type:
    """Create a struct without its state in the worker.

    Unpickling calls this function instead of the metaclass. `fields` contains the struct's own
    fields, with the arguments of `msgspec.field`.
    """
    # msgspec reads the types when it decodes the first value, after the state has set them.
    namespace["__annotations__"] = dict.fromkeys(fields, Any)
    for field, default in fields.items():
        if default:
            namespace[field] = msgspec.field(**default)
    if has_post_init:
        namespace[_POST_INIT] = _deferred_post_init
    return msgspec.StructMeta(name, bases, namespace, **options)


def _deferred_post_init(struct: Any) -> None:
    # A struct stores its `__post_init__` on creation; the actual function is set with the state.
    function = getattr(type(struct), _POST_INIT)
    if function is not _deferred_post_init:
        function(struct)


def _is_data(cls: type) -> bool:
    return (
        isinstance(cls, msgspec.StructMeta)
        or dataclasses.is_dataclass(cls)
        or hasattr(cls, "__attrs_attrs__")
        or typing.is_typeddict(cls)
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    )


def _fields(cls: Any) -> tuple[dict[str, dict[str, Any]], bool]:
    names = cls.__struct_fields__
    defaults = cls.__struct_defaults__
    by_name = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
    fields: dict[str, dict[str, Any]] = {}
    for name in _annotations(cls):
        if name in names:
            default = by_name.get(name, msgspec.NODEFAULT)
            if default is msgspec.NODEFAULT:
                fields[name] = {}
            elif hasattr(default, "factory"):
                fields[name] = {"default_factory": default.factory}
            else:
                fields[name] = {"default": default}
    return fields, _POST_INIT in vars(cls)


def _options(cls: Any) -> dict[str, Any]:
    config = cls.__struct_config__
    options = {name: getattr(config, name) for name in _STRUCT_OPTIONS if hasattr(config, name)}
    names = cls.__struct_fields__
    options["rename"] = dict(zip(names, cls.__struct_encode_fields__, strict=True))
    own = set(_annotations(cls)) & set(names)
    options["kw_only"] = not own <= set(cls.__match_args__)
    return options


def _annotations(cls: type) -> dict[str, Any]:
    """Return the annotations of a class's own body, without resolving unknown names."""
    if sys.version_info >= (3, 14):
        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return dict(vars(cls).get("__annotations__", {}))


def _resolved(cls: type, annotations: dict[str, Any]) -> dict[str, Any]:
    module = vars(sys.modules.get(cls.__module__, typing))
    found = {}
    for name, annotation in annotations.items():
        if isinstance(annotation, str):
            annotation = typing.ForwardRef(annotation, is_argument=False, is_class=True)
        holder: Any = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints = typing.get_type_hints(holder, module, dict(vars(cls)), include_extras=True)
            found[name] = hints[name]
        except Exception:
            # For example, a name that only type checkers import. Code that evaluates the annotation
            # will raise an error.
            found[name] = annotations[name]
    return found
