#!/usr/bin/env node
/** The command `holdfast`. */
import { UsageError } from './command.ts'
import { note } from './output.ts'

// A closed pipe (`holdfast tail KEY | head`) must not stop the command.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)

try {
  // Not a static import: Node opens many modules at once, and prints a stack where it may not.
  const { runCommandLine } = await import('./commands.ts')
  process.exit(await runCommandLine(process.argv.slice(2)))
} catch (error) {
  const { code, message } = error as NodeJS.ErrnoException
  const hint = 'holdfast needs 128 file descriptors at least: raise the limit (ulimit -n)'
  // Those of a server; those of Node are in capitals.
  const isStable = /^[a-z]+(_[a-z]+)*$/.test(code ?? '')
  const words = isStable ? `${message} (${code})` : message
  note(code === 'EMFILE' ? hint : words)
  process.exit(error instanceof UsageError ? 2 : 1)
}
