"""The prompt of ``debug.step`` in a terminal, with the commands of Python's debugger.

An empty line repeats the last command, as there; so Enter goes on from line to line.
"""

from __future__ import annotations

import cmd
import inspect
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from fnx.core.support.errors import ArgumentError, LeakedTracerError
from fnx.transforms.inspect import step_views
from fnx.transforms.inspect.step_session import StepSession
from fnx.transforms.inspect.step_views import Step

LISTED = 8  # lines before and after the current one that ``list`` shows
COMMANDS = ("step", "next", "out", "run", "until", "nan", "break", "tbreak", "clear", "print",
            "whatis", "vars", "args", "display", "undisplay", "list", "up", "down", "where", "quit")
_SHOWN_FIRST = ("step", "next", "out", "run", "nan", "break", "print", "vars", "where", "quit")
_TAKE_TEXT = frozenset({"break", "b", "tbreak", "clear", "cl", "print", "p", "pp", "whatis",
                        "display", "undisplay", "vars", "v", "until", "unt", "help"})
# other commands of Python's debugger, and what to do instead
_OTHERS = dict.fromkeys(["jump", "j"], "the order of lines is that of the graph") | dict.fromkeys(
    ["restart"], "q, then call debug.step again") | dict.fromkeys(
    ["interact", "debug", "source"], "type expressions at this prompt") | dict.fromkeys(
    ["condition", "ignore", "enable", "disable", "commands"],
    "cl removes a breakpoint; b LINE if EXPRESSION sets one")


class StepPrompt(cmd.Cmd):
    """Reads commands until the function has returned or the user quits."""

    prompt = "(step) "
    identchars = cmd.Cmd.identchars

    def __init__(self, session: StepSession, **streams: Any) -> None:
        super().__init__(**streams)
        self.session = session
        self.n_up = 0  # how many callers above the current line
        self.displayed: list[str] = []  # expressions that each stop prints
        self.use_rawinput = not streams
        self.echoes = not (self.use_rawinput and sys.stdin.isatty())

    def _say(self, text: Any) -> None:
        print(text, file=self.stdout)

    def _show(self, step: Step | None) -> bool:
        self.n_up = 0
        self._say(self.session if step is None else step)
        for expression in self.displayed if step is not None else ():
            self._say(f"display {expression}: {self._evaluated(expression, brief=True)}")
        return step is None

    def _go(self, on: Callable[[], Step | None]) -> bool:
        """Go on and show where it stopped. After a Ctrl-C it stops at the next line; a second one
        is raised."""
        def stop_soon(*signal_and_frame: Any) -> None:
            if self.session.stop_soon:
                raise KeyboardInterrupt
            self.session.stop_soon = True

        if threading.current_thread() is not threading.main_thread():
            return self._show(on())
        before = signal.signal(signal.SIGINT, stop_soon)
        try:
            return self._show(on())
        finally:
            signal.signal(signal.SIGINT, before)

    def precmd(self, line: str) -> str:
        """Show a command that was not typed in a terminal, so that the output reads like one."""
        if self.echoes:
            self._say("" if line == "EOF" else line)
        return line

    def onecmd(self, line: str) -> bool:
        """Run a command; the end of input quits. What goes on after the name of a command that
        takes no text is an expression: n + 1."""
        name, text, _ = self.parseline(line)
        if name and text and name not in _TAKE_TEXT and text[0] in ".[(+-*/%@<>=!&|^":
            self.do_print(line)
            return False
        return self.do_quit("") if line == "EOF" else super().onecmd(line)

    def default(self, line: str) -> None:
        """Print an expression over the variables."""
        name, rest = (*line.split(maxsplit=1), "")[:2]
        is_variable = name in self.session.names(self.n_up)
        if name in _OTHERS and not is_variable:
            self._say(f"{name} is no command here: {_OTHERS[name]}")
        elif name in ("a", "h") and not is_variable:
            (self.do_args if name == "a" else self.do_help)(rest)
        else:
            self.do_print(line)

    def do_step(self, arg: str) -> bool:
        """s(tep): go to the next line, also into functions and loops."""
        return self._go(self.session.step)

    def do_next(self, arg: str) -> bool:
        """n(ext): go to the next line of this function, over calls and loops."""
        return self._go(self.session.next)

    def do_out(self, arg: str) -> bool:
        """o(ut): go to the line of the caller."""
        return self._go(self.session.out)

    def do_run(self, arg: str) -> bool:
        """r(un) or c(ontinue): go to a breakpoint or to the end."""
        return self._go(self.session.run)

    def do_until(self, arg: str) -> bool | None:
        """unt(il) [LINE]: go to the line; without one, to the next line of this function."""
        if not arg:
            return self.do_next(arg)
        if self._add_breakpoint(arg, once=True):
            return self.do_run("")
        return None

    def do_nan(self, arg: str) -> bool:
        """nan: go to the next line with a NaN or an infinite derivative; the op of the line that
        makes it is named."""
        return self._go(self.session.first_nan)

    def do_break(self, arg: str) -> None:
        """b(reak) [LINE | FILE:LINE | FUNCTION] [if nan | if inf | if EXPRESSION]: stop there in
        run. Without arguments: list where it stops. clear removes it."""
        if arg:
            self._add_breakpoint(arg)
        for b in self.session.breakpoints if not arg else ():
            self._say(b)

    def do_tbreak(self, arg: str) -> None:
        """tbreak LINE...: as break, for the first stop only."""
        self._add_breakpoint(arg, once=True)

    def _add_breakpoint(self, arg: str, *, once: bool = False) -> bool:
        """Add the breakpoint that the user typed, with "if" or a comma before the condition."""
        location, has_condition, condition = f" {arg} ".partition(" if ")
        if not has_condition:
            location, has_condition, condition = arg.partition(",")
        try:
            added = self.session.break_at(
                location.strip(), condition.strip() if has_condition else None, once=once)
        except ArgumentError as error:
            self._say(error.message)
            return False
        self._say(f"will stop at {added}{', once' if once else ''}")
        return True

    def do_clear(self, arg: str) -> None:
        """cl(ear) [LINE | FILE:LINE | FUNCTION]: stop there no longer. Without arguments:
        nowhere."""
        removed = [str(b) for b in self.session.clear(arg or None)]
        left = ", ".join(map(str, self.session.breakpoints))
        self._say(f"removed {', '.join(removed)}" if removed else
                  f"removed no breakpoint; these are: {left or 'none'}")

    def do_list(self, arg: str) -> None:
        """l(ist): show more lines around the current one."""
        if self.session.current:
            self._say("\n".join(step_views.source_text(self.session.current, LISTED)))

    def _variables(self) -> dict[str, Any]:
        """Return the variables that are shown; then those without a value in the graph, but for
        functions and modules."""
        frames = self.session.frames
        if not frames:
            return {}
        shown = frames[-1 - self.n_up][1]
        return shown | {name: x for name, x in self.session.known_variables(self.n_up).items()
                        if name not in shown and not callable(x) and not inspect.ismodule(x)
                        and not any(key.startswith((f"{name}[", f"{name}.")) for key in shown)}

    def _go_up(self, by: int) -> None:
        frames = self.session.frames
        if not 0 <= self.n_up + by < len(frames):
            self._say("this is the outermost function" if by > 0 else "this is the current line")
            return
        self.n_up += by
        self._say(f"print and vars now look at {frames[-1 - self.n_up][0]}")

    def do_up(self, arg: str) -> None:
        """u(p): let print and vars look at the caller, until the next line."""
        self._go_up(1)

    def do_down(self, arg: str) -> None:
        """d(own): let print and vars look at the function that was called."""
        self._go_up(-1)

    def do_print(self, arg: str) -> None:
        """p(rint) or pp EXPRESSION: print the value of an expression over the variables and the
        names of the module, or of a name that is shown, such as: derivative of h."""
        self._say(self._evaluated(arg))

    def do_whatis(self, arg: str) -> None:
        """whatis EXPRESSION: print the type and the range of its value."""
        self._say(self._evaluated(arg, step_views.summarize))

    def _evaluated(self, arg: str, as_text: Callable[[Any], str] = str, *, brief: bool = False
                   ) -> str:
        """Return the value of what the user typed, as text, or why it has none; if ``brief``, not
        why."""
        if not arg:
            return "expected an expression, such as: p h.max()"
        try:
            with self.session.having_values(self.n_up) as names:
                if arg in names:
                    return as_text(names[arg])
                if arg.startswith(step_views.SHOWN_NAMES):  # such as: derivative of h
                    return self.session.why_no_value(arg, self.n_up)
                return as_text(eval(arg, names))
        except NameError as error:
            if brief:
                return "(not here)"
            return self.session.why_no_value(str(error.name), self.n_up) or \
                f"NameError: {error}: neither a command nor a variable; vars lists these"
        except LeakedTracerError:
            return f"{arg} has no value here: an array that it reads is not computed yet, is not " \
                "needed for the result, or is one example of a batch"
        except SyntaxError as error:
            return "a variable keeps its value: the graph is traced; change it in the source" \
                if _is_statement(arg) else f"SyntaxError: {error}"
        except Exception as error:  # what the user typed
            return f"{type(error).__name__}: {error}"

    def do_display(self, arg: str) -> None:
        """display [EXPRESSION]: print its value at each stop. Without one: list them."""
        if arg and arg not in self.displayed:
            self.displayed.append(arg)
        for expression in [arg] if arg else self.displayed:
            self._say(f"display {expression}: {self._evaluated(expression)}")

    def do_undisplay(self, arg: str) -> None:
        """undisplay [EXPRESSION]: print its value no longer; without one, of none."""
        self.displayed = [e for e in self.displayed if arg and e != arg]

    def do_args(self, arg: str) -> None:
        """args: list the arguments of this function."""
        names = self.session.arguments(self.n_up) if self.session.current else []
        self._list({name: x for name, x in self._variables().items()
                    if name.partition("[")[0].partition(".")[0] in names})

    def do_vars(self, arg: str) -> None:
        """v(ars) [NAME]: list the variables of this function; with a name, print its value."""
        if arg:
            self.do_print(arg)
        else:
            self._list(self._variables())

    def _list(self, variables: dict[str, Any]) -> None:
        shapes = self.session.shapes(self.n_up) if variables else {}
        for name, value in variables.items():
            self._say(f"   {name} = {step_views.summarize(value, shapes.get(name))}")

    def do_where(self, arg: str) -> None:
        """w(here): show the lines whose calls led here, the current one last; ">" is at the one
        that print and vars are about."""
        step = self.session.current
        if step is None:
            self._say(self.session)
            return
        rows = step_views.call_stack(step)
        for i, row in enumerate(rows):
            self._say(f"{'>' if i == len(rows) - 1 - self.n_up else ' '} {row}")

    def do_help(self, arg: str) -> None:
        """help [COMMAND]: explain a command, or all of them."""
        for name in [arg] if arg else [*COMMANDS, "help"]:
            command = getattr(self, f"do_{name}", None)
            self._say(inspect.getdoc(command) if command else
                      f"{name} is no command; these are: {', '.join(COMMANDS)}")
        if not arg:
            self._say("Anything else is an expression to print; Enter repeats the last command.")

    def do_quit(self, arg: str) -> bool:
        """q(uit): leave the prompt; the function runs to its end, and the call returns."""
        return True

    do_s, do_n, do_o, do_r, do_c, do_continue = do_step, do_next, do_out, do_run, do_run, do_run
    do_b, do_p, do_v, do_w, do_q = do_break, do_print, do_vars, do_where, do_quit
    do_cl, do_l, do_u, do_d = do_clear, do_list, do_up, do_down
    do_pp, do_shell, do_bt, do_ll, do_exit = do_print, do_print, do_where, do_list, do_quit
    do_return, do_unt, do_cont = do_out, do_until, do_run


def _is_statement(text: str) -> bool:
    """Whether a text that is no expression is a statement, such as an assignment."""
    try:
        compile(text, "<typed>", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def interact(session: StepSession, **streams: Any) -> None:
    """Run the prompt on a session, on the terminal or on ``stdin`` and ``stdout``."""
    prompt = StepPrompt(session, **streams)
    prompt._say(f"{session.name}: {', '.join(_SHOWN_FIRST)}; help explains all.\n"
                "The arrow is at the line that has just run: its values follow.")
    prompt._show(session.current or session.step())
    at_prompt = not session.done
    while at_prompt:
        try:
            prompt.cmdloop()
            at_prompt = False
        except KeyboardInterrupt:
            if session.is_broken:
                raise
            prompt._say("\nCtrl-C: q leaves the prompt")

