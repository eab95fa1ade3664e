"""completion: a script that completes a command in a shell, written from its argparse parser.

Own code, not a library: the script is plain words and files, so a user has nothing to install first.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..classes import dataclass

__all__ = ["SHELLS", "completion"]


@dataclass(frozen=True, slots=True)
class _Argument:
    """An argument of a subcommand.

    Attributes:
        options: its spellings; empty for a positional one.
        text: its help, in one line.
        value: what follows it: "files", "words", "other" (a number, say) or "none".
        words: its choices.
        several: whether it may be given more than once.
    """

    options: tuple[str, ...]
    text: str
    value: str
    words: tuple[str, ...]
    several: bool


Commands = Mapping[str, tuple[str, Sequence[_Argument]]]
"""Name of a subcommand -> its help line, and its arguments."""


def completion(shell: str, parser: argparse.ArgumentParser) -> str:
    """Write the script.

    Args:
        shell: one of `SHELLS`.
        parser: of the command, with all of its subcommands and their arguments.
    """
    return SHELLS[shell](parser.prog, dict(_commands(parser)))


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, tuple[str, list[_Argument]]]]:
    (group,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    texts = {choice.dest: choice.help or "" for choice in group._choices_actions}
    for name, one in group.choices.items():
        yield name, (texts[name], [_argument(one, action) for action in one._actions])


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> _Argument:
    words = tuple(map(str, action.choices or ()))
    value = "words" if words else "other" if action.type in (int, float) else "files"
    text = (action.help or "") % (vars(action) | {"prog": parser.prog})
    several = isinstance(action, argparse._AppendAction) or action.nargs in ("*", "+")
    return _Argument(
        tuple(action.option_strings), " ".join(text.split()), "none" if action.nargs == 0 else value, words, several
    )


def _bash(prog: str, commands: Commands) -> str:
    options, values = [], []
    for name, (_, arguments) in commands.items():
        spelled = [option for argument in arguments for option in argument.options]
        options.append(f"    {name}) options='{' '.join(spelled)}' ;;")
        for argument in arguments:
            pattern = "|".join(f"'{name} {option}'" for option in argument.options)
            if argument.value == "words" and argument.options:
                values.append(f"    {pattern}) words='{' '.join(argument.words)}' ;;")
            elif argument.value == "words":
                values.append(f"    '{name} {name}') words='{' '.join(argument.words)}' ;;")
            elif argument.value == "other":
                values.append(f"    {pattern}) return ;;")
    return "\n".join(
        [
            f"# bash completion of {prog}",
            f"_{prog}() {{",
            "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}",
            "  local command=${COMP_WORDS[1]} options='' words=''",
            "  COMPREPLY=()",
            '  case "$command" in',
            *options,
            "  esac",
            '  if [[ $COMP_CWORD -eq 1 ]]; then words="' + " ".join(commands) + ' --help --version"',
            "  elif [[ $word == -* ]]; then words=$options",
            '  else case "$command $before" in',
            *values,
            f"    *) {_BASH_FILES}; return ;;",
            "  esac; fi",
            '  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")',
            "}",
            f"complete -F _{prog} {prog}",
        ]
    )


# `-o filenames` makes readline quote blanks and add a slash behind folders.
_BASH_FILES = 'compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word")'


def _zsh(prog: str, commands: Commands) -> str:
    lines = [
        f"#compdef {prog}",
        f"_{prog}() {{",
        "  local -a commands",
        "  commands=(",
        *(f"    {_single(f'{name}:{text}')}" for name, (text, _) in commands.items()),
        "  )",
        "  if (( CURRENT == 2 )); then",
        "    _describe command commands",
        "    return",
        "  fi",
        "  local command=$words[2]",
        "  shift words; (( CURRENT-- ))",
        "  case $command in",
    ]
    for name, (_, arguments) in commands.items():
        specs = [_single(spec) for argument in arguments for spec in _zsh_specs(argument)]
        lines += [f"    {name})", f"      _arguments {f' {chr(92)}{chr(10)}        '.join(specs)} ;;"]
    lines += ["  esac", "}", f'if [[ $funcstack[1] == _{prog} ]]; then _{prog} "$@"; else compdef _{prog} {prog}; fi']
    return "\n".join(lines)


def _zsh_specs(argument: _Argument) -> Iterator[str]:
    follows = {
        "files": ":file:_files",
        "words": f":value:({' '.join(argument.words)})",
        "other": ":value: ",
        "none": "",
    }
    text = argument.text
    for mark in "\\[]:":
        text = text.replace(mark, f"\\{mark}")
    for option in argument.options:
        yield f"{'*' * argument.several}{option}[{text}]{follows[argument.value]}"
    if not argument.options:
        yield ("*" if argument.several else "") + follows[argument.value]


def _fish(prog: str, commands: Commands) -> str:
    lines = [f"# fish completion of {prog}", f"complete -c {prog} -f -n __fish_use_subcommand -l version"]
    for name, (text, arguments) in commands.items():
        lines.append(f"complete -c {prog} -f -n __fish_use_subcommand -a {name} -d {_fish_quoted(text)}")
        for argument in arguments:
            start = f"complete -c {prog} -n '__fish_seen_subcommand_from {name}'"
            words = f" -a {_fish_quoted(' '.join(argument.words))}" if argument.words else ""
            spelled = "".join(f" {'-l' if o.startswith('--') else '-s'} {o.lstrip('-')}" for o in argument.options)
            if argument.options:
                kind = {"files": " -r -F", "words": f" -x{words}", "other": " -x", "none": " -f"}[argument.value]
                lines.append(f"{start}{spelled}{kind} -d {_fish_quoted(argument.text)}")
            elif argument.words:
                lines.append(f"{start} -f{words}")
    return "\n".join(lines)


def _single(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: Mapping[str, Callable[[str, Commands], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""Shell -> what writes its script."""
