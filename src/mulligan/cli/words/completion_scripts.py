"""The scripts that make a shell ask `mulligan` for completions: shown, or installed where the shell looks for them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from mulligan.cli.output.terminal import UsageRefused, show

_BASH = """\
_mulligan_completion() {
    local IFS=$'\\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" \\
                   COMP_CWORD=$COMP_CWORD \\
                   _MULLIGAN_COMPLETE=complete_bash $1 ) )
    return 0
}

complete -o nosort -o default -F _mulligan_completion mulligan"""
_ZSH = """\
#compdef mulligan

_mulligan_completion() {
  eval $(env _TYPER_COMPLETE_ARGS="${words[1,$CURRENT]}" _MULLIGAN_COMPLETE=complete_zsh mulligan)
}

compdef _mulligan_completion mulligan"""
_FISH = (
    "complete --command mulligan --no-files --keep-order"
    ' --arguments "(env _MULLIGAN_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args'
    ' _TYPER_COMPLETE_ARGS=(commandline -cp) mulligan)"'
    ' --condition "env _MULLIGAN_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=is-args'
    ' _TYPER_COMPLETE_ARGS=(commandline -cp) mulligan"'
)
_POWERSHELL = """\
Import-Module PSReadLine
Set-PSReadLineKeyHandler -Chord Tab -Function MenuComplete
$scriptblock = {
    param($wordToComplete, $commandAst, $cursorPosition)
    $Env:_MULLIGAN_COMPLETE = "complete_powershell"
    $Env:_TYPER_COMPLETE_ARGS = $commandAst.ToString()
    mulligan | ForEach-Object {
        $commandArray = $_ -Split ":::"
        $command = $commandArray[0]
        $helpString = $commandArray[1]
        [System.Management.Automation.CompletionResult]::new(
            $command, $command, 'ParameterValue', $helpString)
    }
    $Env:_MULLIGAN_COMPLETE = ""
    $Env:_TYPER_COMPLETE_ARGS = ""
}
Register-ArgumentCompleter -Native -CommandName mulligan -ScriptBlock $scriptblock"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "powershell": _POWERSHELL, "pwsh": _POWERSHELL}


def show_script(shell: str = "") -> None:
    """Print the script of a shell; by default of the one that started us."""
    show(SCRIPTS[_known(shell)])


def install(shell: str = "") -> None:
    """Install the script of a shell; by default of the one that started us."""
    shell = _known(shell)
    if shell == "bash":
        path = Path.home() / ".bash_completions/mulligan.sh"
        _write(path, SCRIPTS[shell])
        _add_lines(Path.home() / ".bashrc", f"source '{path}'")
    elif shell == "zsh":
        path = Path.home() / ".zfunc/_mulligan"
        _write(path, SCRIPTS[shell])
        rc_path = Path.home() / ".zshrc"
        _add_lines(rc_path, "fpath+=~/.zfunc; autoload -Uz compinit; compinit")
        if "zstyle" not in _read(rc_path):
            _add_lines(rc_path, "zstyle ':completion:*' menu select")
    elif shell == "fish":
        path = Path.home() / ".config/fish/completions/mulligan.fish"
        _write(path, SCRIPTS[shell])
    else:
        answer = subprocess.run([shell, "-NoProfile", "-Command", "echo", "$profile"], capture_output=True, check=False)
        if answer.returncode or not answer.stdout.strip():
            hint = f"add what mulligan --show-completion {shell} prints to your profile"
            raise UsageRefused(f"'{shell}' does not say where its profile is", hint=hint)
        path = Path(os.fsdecode(answer.stdout).strip())
        _add_lines(path, SCRIPTS[shell])
    show(f"{shell} completion installed in {path}\nCompletion will take effect once you restart the terminal")


def _known(shell: str) -> str:
    shell = shell or _current_shell()
    if shell not in SCRIPTS:
        message = f"there is no completion for '{shell}'" if shell else "the current shell is not known"
        raise UsageRefused(message, hint=f"name one of {', '.join(SCRIPTS)}: mulligan --install-completion bash")
    return shell


def _current_shell() -> str:
    """The nearest shell among the processes that started us; where processes cannot be seen, the login shell."""
    process = os.getppid()
    try:
        while process > 1:
            status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
            # `1234 (zsh) S 1200 …`; the name of a process may hold blanks and parentheses.
            name, _, fields = status.partition("(")[2].rpartition(")")
            if name in SCRIPTS:
                return name
            process = int(fields.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    return os.path.basename(os.environ.get("SHELL", ""))


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _write(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script + "\n", encoding="utf-8")


def _add_lines(path: Path, lines: str) -> None:
    """Append lines to a file of the user, unless they are in it."""
    if lines not in _read(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n{lines}\n")
