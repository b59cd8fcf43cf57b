/** `holdfast backup FILE`: a checked copy of the store, while the server runs. */
import { stat } from 'node:fs/promises'
import { backupSqlite } from '../stores/sqlite/index.ts'
import { UsageError, type Command, type Values } from './command.ts'
import { STORE_FLAGS, storeFile } from './store-flags.ts'

export const backup: Command = {
  name: 'backup',
  usage: 'backup FILE [--data DIR | --store sqlite:FILE]',
  summary: 'Copies the store to FILE, which must not exist. The server may run meanwhile.',
  flags: STORE_FLAGS,
  help: [
    ['--data DIR', 'the folder that serve was given (./.holdfast)'],
    ['--store sqlite:FILE', "or the store's own file"],
  ],
  run: copyStore,
}

async function copyStore(values: Values, words: readonly string[]): Promise<number> {
  const [to, ...more] = words
  if (to === undefined || more.length > 0) {
    throw new UsageError('backup takes one FILE (see holdfast backup --help)')
  }
  const file = storeFile(values)
  await backupSqlite({ file, to })
  const { size } = await stat(to)
  console.log(`holdfast: copied ${file} to ${to} (${size} bytes)`)
  return 0
}
