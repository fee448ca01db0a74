"""Recipes: one YAML file per published configuration, with the score to reach and its source."""

from __future__ import annotations

from pathlib import Path

from shoal.errors import ShoalError, unknown_name

FOLDER = Path(__file__).parents[1] / "recipes"


def list_recipes() -> list[str]:
    """The names of the recipes that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def find_recipe(name: str) -> Path:
    """The file of a recipe: one that comes with the package, or the user's own by its path."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.parent != Path("."):
        if not path.is_file():
            raise ShoalError(f"recipe {name} does not exist: expected a YAML file, or the name of a recipe")
        return path
    if name not in list_recipes():
        raise unknown_name("recipe", name, list_recipes())
    return FOLDER / f"{name}.yaml"
