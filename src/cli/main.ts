#!/usr/bin/env node
/** The command line: a table of commands, and what all of them share. */
import { VERSION } from '../wire/version.ts'
import { backup } from './backup.ts'
import { cdp } from './cdp.ts'
import { close } from './close.ts'
import { commandHelp, readArguments, suggestion, UsageError, type Command } from './command.ts'
import { exportLog } from './export.ts'
import { nodes } from './nodes.ts'
import { queue } from './queue.ts'
import { send } from './send.ts'
import { serve } from './serve.ts'
import { sessions } from './sessions.ts'
import { tail } from './tail.ts'
import { token } from './token.ts'
import { verify } from './verify.ts'

const COMMANDS: readonly Command[] = [
  serve,
  send,
  sessions,
  tail,
  queue,
  close,
  exportLog,
  verify,
  token,
  backup,
  nodes,
  cdp,
]

async function main([name, ...args]: readonly string[]): Promise<number> {
  if (name === '--version' || name === '-v') return say(VERSION)
  if (name === '--help' || name === '-h' || name === 'help') return say(overview())
  if (name === undefined) throw new UsageError('which command? (see holdfast --help)')
  const command = commandOf(name)
  const { values, words } = readArguments(command, args)
  if (values['help'] === true) return say(commandHelp(command))
  return command.run(values, words)
}

function commandOf(name: string): Command {
  const command = COMMANDS.find((candidate) => candidate.name === name)
  if (command !== undefined) return command
  const hint = suggestion(
    name,
    COMMANDS.map((candidate) => candidate.name),
  )
  const instead = hint === null ? 'see holdfast --help' : `do you mean ${hint}?`
  throw new UsageError(`there is no command ${name}: ${instead}`)
}

function overview(): string {
  const lines = COMMANDS.map(
    ({ usage, summary }) => `  holdfast ${usage}\n      ${summary.replaceAll('\n', '\n      ')}`,
  )
  return [
    `Holdfast ${VERSION}, the session authority`,
    '',
    ...lines,
    '',
    'holdfast COMMAND --help tells about one of them, holdfast --version the version.',
  ].join('\n')
}

function say(text: string): number {
  console.log(text)
  return 0
}

/** Whoever read our output may be gone: that is no reason to stop. */
function ignoreBrokenPipes(): void {
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
}

ignoreBrokenPipes()
try {
  process.exit(await main(process.argv.slice(2)))
} catch (error) {
  console.error(`holdfast: ${(error as Error).message}`)
  process.exit(error instanceof UsageError ? 2 : 1)
}
