"""The `tss` command. It mirrors `Learner`; a user's mistake is one line on stderr, never a traceback.

Exit status: 0 done, 1 a check found something changed or damaged, 2 an error we know, 130 stopped by the user.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import tss
from tss.cli import backbone, bench, bench_complete, data, demo, history, learn, look, predict
from tss.cli import serve as serving
from tss.errors import TssError


class _Commands(TyperGroup):
    """Turns the errors we know into one line and an exit status; the rest is a bug and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except TssError as error:
            raise _stop(f"error: {error}", 2) from error
        except KeyboardInterrupt as stopped:
            raise _stop("stopped; run the same command to go on", 130) from stopped
        except BrokenPipeError:
            # The reader of our output has gone (`tss tasks STORE | head -1`). Python would complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except OSError as error:
            if error.filename is None:
                raise
            raise _stop(f"error: {error.strerror}: {error.filename}", 2) from error
        return result


def _stop(message: str, status: int) -> typer.Exit:
    typer.echo(message, err=True)
    return typer.Exit(status)


app = typer.Typer(
    cls=_Commands, no_args_is_help=True, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tss {tss.__version__}")
        raise typer.Exit()


@app.callback()
def _start(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Teach a frozen language model task after task.

    Nothing learnt is ever forgotten, and `tss verify` proves it.

    \b
    Start here:
      tss demo --quick
      tss learn store reviews/
      tss predict store reviews "A fine read."
    """
    # Loading a model must not fill the screen with remarks that are not about the user's task.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


for command in (
    demo.demo,
    learn.learn,
    predict.predict,
    predict.which,
    predict.evaluate,
    look.tasks,
    look.verify,
    look.methods,
    serving.serve,
    demo.report,
):
    app.command(no_args_is_help=command is not demo.demo and command is not look.methods)(command)
for called in (history.export, history.import_, history.rollback, history.revisit, history.remove, history.gc):
    app.command(called.__name__.rstrip("_"), no_args_is_help=True)(called)

data_commands = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Prepare and check the data of the paper."
)
data_commands.command()(data.prepare)
data_commands.command()(data.check)
app.add_typer(data_commands, name="data")

backbone_commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The frozen language models.")
backbone_commands.command("list")(backbone.known)
backbone_commands.command()(backbone.pretrain)
app.add_typer(backbone_commands, name="backbone")

bench_commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The paper's experiments.")
bench_commands.command(no_args_is_help=True)(bench.run)
bench_commands.command(no_args_is_help=True)(bench_complete.complete)
bench_commands.command(no_args_is_help=True)(bench.table)
bench_commands.command(no_args_is_help=True)(bench.claims)
bench_commands.command(no_args_is_help=True)(bench.pack)
bench_commands.command(no_args_is_help=True)(bench.again)
bench_commands.command(hidden=True)(bench.work)
app.add_typer(bench_commands, name="bench")


def main() -> None:
    """Run the command line."""
    app()
