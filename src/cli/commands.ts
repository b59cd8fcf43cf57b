/** All commands, in the order of the overview. */
import { VERSION } from '../wire/version.ts'
import { answer, asks, grants } from './ask-commands.ts'
import { adopt, agents, cancel, fork, open } from './agent-commands.ts'
import { acp } from './acp.ts'
import { cdp } from './cdp.ts'
import { chat } from './chat.ts'
import { check } from './check.ts'
import { completionCommand } from './completion.ts'
import { doctor } from './doctor.ts'
import { inspect } from './inspect.ts'
import { unknownName, UsageError, wrap, type CliCommand } from './command.ts'
import { importArchives, retention } from './retention.ts'
import { erase } from './erase.ts'
import { rules } from './rules.ts'
import { send } from './send.ts'
import { serve } from './serve.ts'
import { close, exportLog, queue, sessions, tail } from './session-commands.ts'
import { backup, nodes } from './stores.ts'
import { token } from './token.ts'
import { top } from './top.ts'
import { verify } from './verify.ts'
import { webhooks } from './webhooks.ts'

export const COMMANDS: readonly CliCommand[] = [
  ...[serve, chat, send, asks, answer, grants, sessions, tail, queue, cancel, close],
  erase,
  ...[exportLog, importArchives, agents, fork, adopt, open, verify, token, rules, retention],
  ...[webhooks, check, backup, nodes, cdp, acp],
  ...[inspect, top, doctor, completionCommand(() => COMMANDS)],
]

/** Resolves with the exit code. */
export async function runCommandLine([name, ...args]: readonly string[]): Promise<number> {
  if (name === '--version' || name === '-v') return print(VERSION)
  if (name === '--help' || name === '-h' || name === 'help') return print(overview())
  if (name === undefined) throw new UsageError('which command? (see holdfast --help)')
  return commandOf(name).start(args)
}

function commandOf(name: string): CliCommand {
  const command = COMMANDS.find((candidate) => candidate.name === name)
  if (command !== undefined) return command
  const names = COMMANDS.map((candidate) => candidate.name)
  throw unknownName('command', name, names, 'see holdfast --help')
}

function overview(): string {
  const lines = COMMANDS.flatMap(({ usage, summary }) => [
    `  holdfast ${usage}`,
    ...wrap(summary, 94).map((line) => `      ${line}`),
  ])
  return [
    `Holdfast ${VERSION}: session server and library`,
    '',
    ...lines,
    '',
    'holdfast COMMAND --help shows the flags of a command, holdfast --version the version.',
  ].join('\n')
}

function print(text: string): number {
  console.log(text)
  return 0
}
