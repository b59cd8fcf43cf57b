/** `holdfast completion`: what a shell completes, from the tables of flags. */
import { defineCommand, UsageError, type CliCommand } from './command.ts'

const SHELLS: Readonly<Record<string, (commands: readonly CliCommand[]) => string>> = {
  bash: bashScript,
  zsh: zshScript,
  fish: fishScript,
}

/** Flags whose value is a file or a folder. */
const PATH_VALUES = /^(FILE|DIR|CONFIG|sqlite:FILE)$/

/** `commands`: all of them, this one too. */
export function completionCommand(commands: () => readonly CliCommand[]) {
  return defineCommand({
    name: 'completion',
    operands: { usage: 'bash | zsh | fish', takes: 'bash, zsh or fish', min: 1, max: 1 },
    summary:
      'Prints a script that makes a shell complete commands and flags: source <(holdfast ' +
      'completion bash) in ~/.bashrc, the same with zsh after compinit in ~/.zshrc, or ' +
      'holdfast completion fish > ~/.config/fish/completions/holdfast.fish.',
    flags: {},
    async run(_values, [shell = '']) {
      const script = Object.hasOwn(SHELLS, shell) ? SHELLS[shell] : undefined
      if (script === undefined) throw new UsageError('completion takes bash, zsh or fish')
      console.log(script(commands()))
    },
  })
}

const flagsOf = ({ flags }: CliCommand): readonly string[] => {
  return [...Object.keys(flags), 'help'].map((name) => `--${name}`)
}

function bashScript(commands: readonly CliCommand[]): string {
  const cases = commands.map((command) => {
    return `    ${command.name}) words='${flagsOf(command).join(' ')}' ;;`
  })
  const paths = commands.flatMap(({ flags }) =>
    Object.entries(flags).filter(([, { valueName }]) => PATH_VALUES.test(valueName ?? '')),
  )
  const pathFlags = [...new Set(paths.map(([name]) => `--${name}`))]
  return [
    '_holdfast() {',
    '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=',
    '  COMPREPLY=()',
    `  if [ "$COMP_CWORD" = 1 ]; then`,
    `    words='${commands.map(({ name }) => name).join(' ')} --help --version'`,
    '  else',
    `    case "$before" in`,
    `    ${pathFlags.join('|')})`,
    '      COMPREPLY=($(compgen -f -- "$current")); return ;;',
    '    esac',
    '    case "${COMP_WORDS[1]}" in',
    ...cases,
    '    esac',
    '  fi',
    '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
    '}',
    'complete -o default -F _holdfast holdfast',
  ].join('\n')
}

function zshScript(commands: readonly CliCommand[]): string {
  const names = commands.map(({ name, summary }) => `    ${quoted(`${name}:${firstOf(summary)}`)}`)
  const cases = commands.map(({ name, flags }) => {
    const specs = Object.entries(flags).map(([flag, { valueName, meaning }]) => {
      const described = `--${flag}${valueName === null ? '' : '='}[${bracketed(meaning)}]`
      if (valueName === null) return described
      return `${described}:${valueName.replaceAll(':', ' ')}:${
        PATH_VALUES.test(valueName) ? '_files' : ''
      }`
    })
    const all = [...specs, '--help[show the flags]', '*:word:_files'].map(quoted)
    return `    ${name}) _arguments ${all.join(' ')} ;;`
  })
  return [
    '#compdef holdfast',
    '_holdfast() {',
    '  if (( CURRENT == 2 )); then',
    '    local -a commands=(',
    ...names,
    '    )',
    '    _describe command commands',
    '    return',
    '  fi',
    '  local command="$words[2]"',
    '  shift words; (( CURRENT-- ))',
    '  case "$command" in',
    ...cases,
    '  esac',
    '}',
    'compdef _holdfast holdfast',
  ].join('\n')
}

function fishScript(commands: readonly CliCommand[]): string {
  const lines = ['complete -c holdfast -f -n __fish_use_subcommand -l version -d version']
  for (const { name, summary, flags } of commands) {
    const described = quoted(firstOf(summary))
    lines.push(`complete -c holdfast -f -n __fish_use_subcommand -a ${name} -d ${described}`)
    for (const [flag, { valueName, meaning }] of Object.entries(flags)) {
      const value = valueName === null ? '' : PATH_VALUES.test(valueName) ? ' -r -F' : ' -x'
      const when = quoted(`__fish_seen_subcommand_from ${name}`)
      lines.push(`complete -c holdfast -n ${when} -l ${flag}${value} -d ${quoted(meaning)}`)
    }
  }
  return lines.join('\n')
}

const firstOf = (summary: string): string => summary.split(/(?<=\.) /)[0] ?? summary
/** Brackets and colons mean something to zsh. */
const bracketed = (text: string): string =>
  text.replaceAll('[', '(').replaceAll(']', ')').replaceAll(':', ' -')

/** A word for each of the three shells: what any of them would take for more is replaced. */
const quoted = (text: string): string => `'${text.replaceAll("'", '’').replaceAll('\\', '/')}'`
