"""Classes of data that travel as code: structs of msgspec, dataclasses, named tuples, typed dicts.

cloudpickle makes a class in two steps, so that it may refer to itself: an empty one first, its
attributes later. That does not suffice for classes from which serdes are made:

- A `msgspec.Struct` lays out its fields when it is made. So the names of its fields, their defaults
  and its options are given to the first step.
- Types that are written as text (`from __future__ import annotations`, or a class that refers to
  itself) are looked up in the module of the class, which is not there in a worker. So they are
  looked up before they travel.
- What msgspec has noted in a class of which a serde was made is compiled, and cannot be pickled. It
  is left out: the worker's msgspec notes it again.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from typing import Any, Final

import msgspec

if sys.version_info >= (3, 14):
    import annotationlib

#: What a struct's metaclass takes and its `__struct_config__` tells.
_STRUCT_OPTIONS: Final = (
    *("frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults"),
    *("forbid_unknown_fields", "weakref", "dict", "cache_hash", "tag", "tag_field"),
)
#: Where msgspec keeps what it has found out about an enumeration, a dataclass, a typed dict.
_CACHE: Final = "__msgspec_cache__"
_POST_INIT: Final = "__post_init__"
#: Where Python 3.14 keeps what it has not looked up yet (PEP 649): in a worker it could not.
_LAZY_ANNOTATIONS: Final = ("__annotate__", "__annotate_func__", "__annotations_cache__")

#: What restricts the values of a type, as in `Annotated[int, msgspec.Meta(ge=0)]`.
_META: Final = (
    *("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length"),
    *("title", "description", "examples", "extra_json_schema", "extra"),
)

#: What a pickler's `reducer_override` gives for a class that travels as code.
Reduced = tuple[Any, ...]


def reduce_data_class(cls: type, reduced: Reduced) -> Reduced:
    """Complete what cloudpickle makes of a class.

    Args:
        cls: the class.
        reduced: cloudpickle's way to make it anew: a constructor, its arguments, of which the first
            one is the metaclass, and the state, of which the first part is the class's dictionary.

    Returns:
        A way that, for a class of data, also brings its fields and types.
    """
    make, arguments, (variables, slots), *rest = reduced
    variables = {name: value for name, value in variables.items() if name != _CACHE}
    annotations = _annotations(cls) if _is_data(cls) else {}
    if annotations:
        for name in _LAZY_ANNOTATIONS:
            variables.pop(name, None)
        variables["__annotations__"] = _resolved(cls, annotations)
    if isinstance(cls, msgspec.StructMeta):
        arguments = (StructMaker(*_fields(cls), _options(cls)), *arguments[1:])
    return (make, arguments, (variables, slots), *rest)


def reduce_meta(meta: msgspec.Meta) -> Reduced:
    """How to make a restriction of a type anew."""
    given = {name: getattr(meta, name) for name in _META if getattr(meta, name, None) is not None}
    return make_meta, (given,)


def make_meta(given: dict[str, Any]) -> msgspec.Meta:
    """In the worker: a restriction of a type."""
    return msgspec.Meta(**given)


class StructMaker:
    """In the worker: stands for the metaclass of a struct, of which it knows what comes first.

    Args:
        fields: the names of its own fields, with their defaults as `msgspec.field` takes them.
        has_post_init: whether a function is to be called when an instance has been made.
        options: what its metaclass takes.
    """

    def __init__(
        self, fields: dict[str, dict[str, Any]], has_post_init: bool, options: dict[str, Any]
    ) -> None:
        self._fields = fields
        self._has_post_init = has_post_init
        self._options = options

    def __call__(self, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
        # The types are not looked at before the first value is decoded; the state brings them.
        namespace["__annotations__"] = dict.fromkeys(self._fields, Any)
        for field, default in self._fields.items():
            if default:
                namespace[field] = msgspec.field(**default)
        if self._has_post_init:
            namespace[_POST_INIT] = _late_post_init
        return msgspec.StructMeta(name, bases, namespace, **self._options)


def _late_post_init(struct: Any) -> None:
    # A struct remembers what to call when it is made; the function itself comes with the state.
    function = getattr(type(struct), _POST_INIT)
    if function is not _late_post_init:
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
    """The annotations of a class's own body, with names that are not known yet as they stand."""
    if sys.version_info >= (3, 14):
        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return dict(vars(cls).get("__annotations__", {}))


def _resolved(cls: type, annotations: dict[str, Any]) -> dict[str, Any]:
    """The types of annotations, where they can be known."""
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
            # Such as a name that only type checkers import. Whoever needs it, says so.
            found[name] = annotations[name]
    return found
