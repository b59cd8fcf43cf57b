/** `holdfast backup`: a checked copy of the store. */
import { stat } from 'node:fs/promises'
import { backupSqlite } from '../stores/sqlite/index.ts'
import { defineCommand } from './command.ts'
import { showDefault, text } from './flags.ts'
import { say } from './output.ts'
import { DEFAULT_FOLDER, storeFile } from './store-flags.ts'

export const backup = defineCommand({
  name: 'backup',
  operands: { usage: 'FILE', takes: 'one FILE', min: 1, max: 1 },
  summary: 'Copies the store to FILE, which must not exist. The server may run meanwhile.',
  flags: {
    data: showDefault(text('DIR', 'the folder of the store, as for serve'), DEFAULT_FOLDER),
    store: text('sqlite:FILE', 'instead of --data: the file of the store'),
  },
  async run(values, [to = '']) {
    const file = storeFile(values)
    await backupSqlite({ file, to })
    const { size } = await stat(to)
    say(`copied ${file} to ${to} (${size} bytes)`)
    return 0
  },
})
