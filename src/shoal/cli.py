"""The `shoal` command: gathers the commands and turns errors into one sentence and exit code 2."""

import atexit
import gc
import sys
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import NoReturn

import click

from shoal import __version__
from shoal.commands.baseline import baseline
from shoal.commands.completion import completion
from shoal.commands.data import data
from shoal.commands.demo import demo
from shoal.commands.doctor import doctor
from shoal.commands.embed import embed, predict
from shoal.commands.partition import partition
from shoal.commands.plan import plan
from shoal.commands.rank import rank
from shoal.commands.recipes import recipes
from shoal.commands.report import report
from shoal.commands.sample import sample
from shoal.commands.settings import settings
from shoal.commands.simulate import simulate
from shoal.commands.train import train
from shoal.commands.tune import tune
from shoal.distributed.detect import detect_launch
from shoal.errors import ShoalError, Stopped, is_full_disk


class SuggestingGroup(click.Group):
    """A group that answers an unknown command with the nearest known one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown name is refused with the nearest known one."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = get_close_matches(args[0], self.list_commands(ctx), n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else "`shoal --help` lists the commands"
            raise click.UsageError(f"no such command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=SuggestingGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80}
)
@click.version_option(__version__, prog_name="shoal")
def shoal() -> None:
    """Train graph neural networks on graphs too large for ordinary mini-batching.

    \b
    Start here:
      shoal demo                     a first run on embedded data
      shoal data import SRC -o DIR   bring your own graph
      shoal train DIR                train on it
    """


for command in (
    plan,
    train,
    report,
    tune,
    recipes,
    embed,
    predict,
    baseline,
    sample,
    partition,
    simulate,
    settings,
    data,
    doctor,
    demo,
    completion,
    rank,
):
    shoal.add_command(command)


_NEW_OBJECTS = 50_000  # before Python looks for garbage in cycles; it would at 700


@cache
def _collect_rarely() -> None:
    """Start and end faster: importing torch and Numba makes a million objects that stay, which a command need not search.

    Training leaves no cycles behind. At the end everything is left to the system, which takes it back as a whole.
    """
    gc.set_threshold(_NEW_OBJECTS)
    atexit.register(gc.freeze)


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit: with 0, with 2 for bad input, with 128 + the signal when interrupted."""
    _collect_rarely()
    try:
        code = shoal.main(args=args, prog_name="shoal", standalone_mode=False)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        fail(say_usage_error(error), 2)
    except (click.Abort, KeyboardInterrupt) as error:
        # click wraps Ctrl-C; the message of an interrupted download says how to resume it
        cause = error.__cause__ or error
        fail(str(cause) or "interrupted", 128 + (cause.signal if isinstance(cause, Stopped) else 2))
    except ShoalError as error:
        fail(str(error), 2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        what = "no space left: free some, or choose another disk" if is_full_disk(error) else error.strerror
        fail(f"{where}{what or error}", 2)
    sys.exit(code if isinstance(code, int) else 0)


def say_usage_error(error: click.ClickException) -> str:
    """Format a usage error, such as a misspelt option, as one sentence that ends with the help command."""
    sentence = error.format_message().rstrip(".")
    sentence = sentence[:1].lower() + sentence[1:]
    context = getattr(error, "ctx", None)
    return f"{sentence} (`{context.command_path} --help` explains)" if context else sentence


def fail(sentence: str, code: int) -> NoReturn:
    """Print the error and exit. An error that several ranks found is printed once."""
    if code == 2:
        with suppress(ShoalError):  # the launcher's variables may be what is wrong
            launch = detect_launch()
            if launch.size > 1:
                from shoal.distributed.launch import end_early

                end_early(sentence, launch)
    click.echo(f"shoal: {sentence}", err=True)
    sys.exit(code)
