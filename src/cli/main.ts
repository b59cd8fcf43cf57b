#!/usr/bin/env node
/** The command `holdfast`. */
import { runCommandLine } from './commands.ts'
import { UsageError } from './command.ts'
import { note } from './output.ts'

// A closed pipe (`holdfast tail KEY | head`) must not stop the command.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)

try {
  process.exit(await runCommandLine(process.argv.slice(2)))
} catch (error) {
  note((error as Error).message)
  process.exit(error instanceof UsageError ? 2 : 1)
}
