"""The API reference: a page for each group of public names, made from signatures, settings and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import shoal
from shoal.commands.components import format_table
from shoal.errors import ShoalError
from shoal.settings import Setting, list_settings

# Public names that no pattern puts elsewhere belong to the last group.
GROUPS = (
    ("graphs", "Graphs and data", r"Graph|load|.*_graph|.*_stores|Part|Partition|.*_parts?"),
    ("samplers", "Samplers and loaders", r".*Sampler|.*Loader|Prefetcher|Batch|FeatureCaching|join_layers"),
    ("models", "Models and kernels", r"GNN|.*Conv|Adjacency|spmm|stack_hops"),
    ("training", "Training, runs and predictions", r".*"),
    ("registries", "Registries", r"[A-Z_]+"),
)
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Examples)( \(.*\))?:\s*$")


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
    return pages


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
    return text.replace("|", "\\|").replace("<", "&lt;")


def summarize(value: Any) -> str:
    """The first sentence or line of a docstring."""
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return f"registry of {len(value)} components: {', '.join(value)}"
    said = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=[.:]) ", said)[0].rstrip(".:")


def render_name(name: str) -> str:
    value = getattr(shoal, name)
    text = f"## {name}\n\n"
    if inspect.isclass(value):
        text += render_signature(name, value) + render_doc(value) + render_settings(value)
        text += render_bases(value)
        for member, found in list_members(value):
            text += render_member(member, found)
        return text
    if inspect.isroutine(value):
        return text + render_signature(name, value) + render_doc(value) + render_settings(value)
    return (
        text
        + f"Components by name: {', '.join(f'`{one}`' for one in value)}. `shoal settings` explains them.\n"
    )


def render_signature(name: str, value: Any) -> str:
    """The call with names, types and defaults; what a setting means stands in the table below it."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return ""
    said = []
    for one in parameters:
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and "*" not in said and not any(x.startswith("*") for x in said):
            said.append("*")
        mark = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        said.append(mark + show_parameter(one))
    call = (
        f"shoal.{name}({', '.join(said)})" if "." not in name else f"{name.split('.')[1]}({', '.join(said)})"
    )
    if len(call) > 100:
        call = call.split("(")[0] + "(\n    " + ",\n    ".join(said) + ",\n)"
    return f"```text\n{call}\n```\n\n"


def show_parameter(one: inspect.Parameter) -> str:
    """`name: type = default`, the type without what is said about a setting."""
    kind = "" if one.annotation is one.empty else str(one.annotation).replace("typing.", "")
    if kind.startswith("Annotated["):
        kind = first_argument(kind.removeprefix("Annotated["))
    kind = f": {kind}" if kind and "<" not in kind else ""
    if one.default is one.empty:
        return one.name + kind
    return (
        f"{one.name}{kind} = {show_default(one.default)}"
        if kind
        else f"{one.name}={show_default(one.default)}"
    )


def first_argument(text: str) -> str:
    """What stands before the first comma outside of brackets."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign in "[(") - (sign in "])")
        if sign == "," and not depth:
            return text[:at]
    return text


def show_default(value: Any) -> str:
    return value.__name__ if inspect.isclass(value) or inspect.isroutine(value) else repr(value)


def render_settings(value: Any) -> str:
    settings: Mapping[str, Setting] = {}
    with suppress(ShoalError):  # annotations for the type checker only
        settings = list_settings(value)
    return f"{format_table(settings)}\n\n" if settings else ""


def list_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties of a class that no other public class of the package has described already."""
    for name in sorted(dir(kind)):
        owner = next((one for one in kind.__mro__ if name in vars(one)), object)
        described = owner is not kind and owner.__name__ in shoal.__all__
        if not name.startswith("_") and owner.__module__.startswith("shoal.") and not described:
            yield name, vars(owner)[name]


def render_bases(kind: type) -> str:
    """Where the other methods of a class are described."""
    bases = [one.__name__ for one in kind.__mro__[1:] if one.__name__ in shoal.__all__]
    links = ", ".join(f"[`{base}`](api-{find_group(base)}.md#{slug(base)})" for base in bases)
    return f"It has the methods of {links} too.\n\n" if links else ""


def render_member(name: str, found: Any) -> str:
    if isinstance(found, property):
        doc = render_doc(found)
        return f"**`{name}`** (property)\n\n{doc}" if doc else ""
    call = found.__func__ if isinstance(found, classmethod | staticmethod) else found
    if not inspect.isfunction(call):
        return ""
    said = ", ".join(
        show_parameter(one)
        for one in inspect.signature(call).parameters.values()
        if one.name not in ("self", "cls")
    )
    return f"**`{name}({said})`**\n\n{render_doc(found)}"


def render_doc(value: Any) -> str:
    """A docstring as Markdown: `Args:` and the like become lists of **name**: meaning."""
    doc = inspect.getdoc(value)
    if not doc:
        return ""
    lines: list[str] = []
    inside = False
    for line in doc.splitlines():
        if _SECTION.match(line):
            lines += ["", f"*{line.rstrip(':')}*", ""]
            inside = True
        elif inside and (found := re.match(r"    (\*{0,2}[\w, `]+?)(?: \(([^)]*)\))?: (.*)", line)):
            said = f" ({found[2]})" if found[2] else ""
            lines.append(f"- `{found[1].strip('`')}`{said}: {found[3]}")
        elif inside and line.startswith("        "):
            lines.append("  " + line.strip())
        elif inside and line.strip():
            lines.append(line.strip() if line.startswith("    ") else line)
            inside = line.startswith("    ")
        else:
            lines.append(line)
    return "\n".join(lines).strip() + "\n\n"
