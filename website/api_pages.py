"""The API reference: a page for each group of public names, made from signatures, settings and docstrings."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from typing import Any

from parameters import list_parameters, show_default, split_doc

import shoal

# Public names that no pattern puts elsewhere belong to the last group.
GROUPS = (
    ("graphs", "Graphs and data", r"Graph|load|.*_graph|.*_stores|Part|Partition|.*_parts?"),
    ("samplers", "Samplers and loaders", r".*Sampler|.*Loader|Prefetcher|Batch|FeatureCaching|join_layers"),
    ("models", "Models and kernels", r"GNN|.*Conv|Adjacency|spmm|stack_hops"),
    ("training", "Training, runs and predictions", r".*"),
    ("registries", "Registries", r"[A-Z_]+"),
)
# Names of other modules that docs/extending.md builds on.
EXTENDING = {
    "shoal.settings": ("Range", "AtLeast", "Above", "Choices", "Null", "check_settings"),
    "shoal.partitioning.work": ("Work", "traits"),
    "shoal.datasets.formats": ("recognised",),
}


def build_pages() -> dict[str, str]:
    """Markdown by file name below `reference/`."""
    groups: dict[str, list[str]] = {key: [] for key, _, _ in GROUPS}
    for name in sorted(shoal.__all__, key=str.lower):
        if not name.startswith("__"):
            groups[find_group(name)].append(name)
    pages = {"api.md": render_index(groups)}
    for key, title, _ in GROUPS:
        text = f"# {title}\n\n" + "\n".join(map(render_name, groups[key]))
        pages[f"api-{key}.md"] = text.rstrip() + "\n"
    text = "# For components of your own\n\nWhat [Extending](../extending.md) builds on, beside the names of `shoal` itself.\n\n"
    for module, names in EXTENDING.items():
        text += "\n".join(render_name(name, module) for name in names)
    pages["api-extending.md"] = text.rstrip() + "\n"
    return pages


def list_public() -> Iterator[tuple[str, Any, type | None]]:
    """(name, callable, class it is a method of) of everything that the reference describes and that is called."""
    found = [("shoal", name) for name in shoal.__all__]
    found += [(module, name) for module, names in EXTENDING.items() for name in names]
    for module, name in found:
        value = getattr(import_module(module), name)
        if inspect.isclass(value):
            if not issubclass(value, Exception):
                yield name, value, None
            for member, one in list_members(value):
                call = one.__func__ if isinstance(one, classmethod | staticmethod) else one
                if inspect.isfunction(call):
                    yield f"{name}.{member}", call, value
        elif inspect.isroutine(value):
            yield name, value, None


def find_group(name: str) -> str:
    if re.fullmatch(r"[A-Z_]{4,}", name):
        return "registries"
    return next(key for key, _, pattern in GROUPS if re.fullmatch(pattern, name))


def render_index(groups: dict[str, list[str]]) -> str:
    text = "# Python API\n\nEvery public name of `shoal`, made from signatures and docstrings. `import shoal` loads a name when it is first used.\n"
    for key, title, _ in GROUPS:
        text += f"\n## {title}\n\n| name | |\n|---|---|\n"
        for name in groups[key]:
            text += f"| [`{name}`](api-{key}.md#{slug(name)}) | {escape(summarize(getattr(shoal, name)))} |\n"
    return text


def slug(name: str) -> str:
    return re.sub(r"[^\w-]", "", name.lower())


def escape(text: str) -> str:
    """Text for a cell of a table. Code is written as HTML: a bar inside backticks would end the cell."""
    parts = [html.escape(part, quote=False).replace("|", "&#124;") for part in text.split("`")]
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in enumerate(parts))


def summarize(value: Any) -> str:
    """The first sentence or line of a docstring."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return f"registry of {len(value)} components: {', '.join(value)}"
    said = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=[.:]) ", said)[0].rstrip(".:")


def render_name(name: str, module: str = "shoal") -> str:
    value = getattr(import_module(module), name)
    text = f"## {name}\n\n"
    if inspect.isclass(value):
        text += render_signature(f"{module}.{name}", value) + render_doc(value) + render_bases(value)
        for member, found in list_members(value):
            text += render_member(member, found, value)
        return text
    if inspect.isroutine(value):
        return text + render_signature(f"{module}.{name}", value) + render_doc(value)
    return (
        text
        + f"Components by name: {', '.join(f'`{one}`' for one in value)}. `shoal settings` explains them.\n"
    )


def render_signature(name: str, value: Any) -> str:
    """The call with names and defaults; types and meanings stand in the table below it."""
    said = write_call(name, value)
    if len(said) > 100:
        call, _, given = said.removesuffix(")").partition("(")
        lines = re.split(r", (?![^(\[]*[)\]])", given)
        said = f"{call}(\n    " + ",\n    ".join(lines) + ",\n)"
    return f"```text\n{said}\n```\n\n" if said else ""


def write_call(name: str, value: Any) -> str:
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return ""
    said: list[str] = []
    for one in parameters:
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not any(x.startswith("*") for x in said):
            said.append("*")
        mark = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f"={show_default(one.default)}"
        said.append(f"{mark}{one.name}{default}")
    return f"{name}({', '.join(said)})"


def list_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class that no other public class of the package has described already.

    A method that overrides one of those and has no docstring of its own does what is described there.
    """
    bases = [one for one in kind.__mro__[1:] if one.__name__ in shoal.__all__]
    for name in sorted(dir(kind)):
        owner = find_owner(kind, name)
        if name.startswith("_") or not owner.__module__.startswith("shoal."):
            continue
        found = vars(owner)[name]
        if getattr(found, "__name__", name) != name:  # the default of a field
            continue
        same = any(find_owner(base, name) is owner for base in bases)
        silent = not getattr(found, "__doc__", None) and any(hasattr(base, name) for base in bases)
        if not same and not silent:
            yield name, found


def find_owner(kind: type, name: str) -> type:
    """The class that defines a member, `object` where none does."""
    return next((one for one in kind.__mro__ if name in vars(one)), object)


def render_bases(kind: type) -> str:
    """Where the other methods of a class are described."""
    bases = [one.__name__ for one in kind.__mro__[1:] if one.__name__ in shoal.__all__]
    links = ", ".join(f"[`{base}`](api-{find_group(base)}.md#{slug(base)})" for base in bases)
    return f"It has the methods of {links} too.\n\n" if links else ""


def render_member(name: str, found: Any, kind: type) -> str:
    if isinstance(found, property | cached_property):
        doc = render_doc(found)
        return f"**`{name}`** (property)\n\n{doc}" if doc else ""
    call = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    if not inspect.isfunction(call):
        return ""
    return f"**`{write_call(name, call)}`**\n\n{render_doc(call, kind)}"


def render_doc(value: Any, owner: type | None = None) -> str:
    """A docstring as Markdown: its text, a table of the parameters, lists of other entries."""
    text, entries, others = split_doc(inspect.getdoc(value) or "")
    is_called = inspect.isclass(value) or inspect.isroutine(value)
    known = list_parameters(value, owner) if is_called else []
    text = f"{text}\n\n" if text else ""
    if known:
        text += "| parameter | type | default | meaning |\n|---|---|---|---|\n"
        for one in known:
            kind = f"`{one.type}`" if one.type else ""
            default = f"`{one.default}`" if one.default else "" if one.name.startswith("*") else "required"
            text += f"| `{one.name}` | {escape(kind)} | {escape(default)} | {escape(one.meaning)} |\n"
        text += "\n"
    names = {one.name.strip("*") for one in known}
    for section, meanings in entries.items():
        left = {name: said for name, said in meanings.items() if name not in names}
        if left:
            text += (
                f"*{section}*\n\n" + "".join(f"- `{name}`: {said}\n" for name, said in left.items()) + "\n"
            )
    for section, said in others.items():
        text += f"*{section}*\n\n{said}\n"
    return text
