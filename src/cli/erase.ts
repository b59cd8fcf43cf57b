/** `holdfast erase`: all of a session or of a principal, and a look whether it is gone. */
import { createReadStream } from 'node:fs'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import type { PrincipalErasure } from '../core/index.ts'
import { sessionPath } from '../wire/views.ts'
import { defineCommand, repeated, text, toggle, UsageError } from './command.ts'
import { counted, printJson, say } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

/** So long the server may take to give back what it has erased. */
const TIDY_MS = 15_000

export const erase = defineCommand({
  name: 'erase',
  operands: { usage: '[ID|KEY]', takes: 'at most one ID or KEY', min: 0, max: 1 },
  summary:
    'Closes and erases a session, or all sessions of a principal, with what agents wrote and ' +
    'their archives, and tells what could not be removed. This cannot be undone.',
  flags: {
    principal: text('ID', 'all sessions of this principal instead'),
    data: text('DIR', "the SQLite store's folder: looks afterwards whether a text is in its files"),
    absent: repeated('TEXT', 'with --data: a text that must not be there any more'),
    json: toggle('print the result as JSON'),
    ...REMOTE_FLAGS,
  },
  async run({ principal, data, absent, json, ...values }, [name]) {
    if ((name === undefined) === (principal === null)) {
      throw new UsageError('erase takes one ID or KEY, or --principal ID')
    }
    if ((data === null) !== (absent.length === 0)) {
      throw new UsageError('--data and --absent go together')
    }
    const remote = new Remote(values)
    const erased = await (principal === null
      ? eraseSession(remote, name ?? '')
      : remote.json<PrincipalErasure>(`/v1/principals/${encodeURIComponent(principal)}`, 'DELETE'))
    const found = data === null ? [] : await foundIn(data, absent)
    if (json) printJson([{ ...erased, found }])
    else report(erased, found, data !== null)
    return erased.remaining.length === 0 && found.length === 0 ? 0 : 1
  },
})

type Erased = Pick<PrincipalErasure, 'sessions' | 'left' | 'remaining'>

async function eraseSession(remote: Remote, name: string): Promise<Erased> {
  const id = await remote.find(name)
  const path = `${sessionPath(id)}?erase=true`
  const { left } = await remote.json<{ left: readonly string[] }>(path, 'DELETE')
  return {
    sessions: 1,
    left: left.length === 0 ? [] : [{ session: id, what: left }],
    remaining: [],
  }
}

function report(erased: Erased, found: readonly string[], isChecked: boolean): void {
  const { sessions, left, remaining } = erased
  say(`${counted(sessions, 'session')} ${sessions === 1 ? 'is' : 'are'} erased`)
  for (const { session, what } of left) {
    say(`not removed of session ${session}: ${what.join(', ')}`)
  }
  for (const { session, code } of remaining) say(`not erased: session ${session} (${code})`)
  for (const file of found) say(`still there: ${file}`)
  if (isChecked && found.length === 0) say('none of the texts is in the files of the store')
}

/** The files that have one of the texts, once the server has had time to tidy up. */
async function foundIn(folder: string, texts: readonly string[]): Promise<readonly string[]> {
  for (let waited = 0; ; waited += 1_000) {
    const found: string[] = []
    for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
      const file = join(entry.parentPath, entry.name)
      if (entry.isFile() && (await hasText(file, texts))) found.push(file)
    }
    if (found.length === 0 || waited >= TIDY_MS) return found
    await setTimeout(1_000)
  }
}

async function hasText(file: string, texts: readonly string[]): Promise<boolean> {
  const wanted = texts.map((one) => Buffer.from(one))
  const overlap = Math.max(...wanted.map(({ length }) => length)) - 1
  let before = Buffer.alloc(0)
  try {
    for await (const chunk of createReadStream(file)) {
      const part = Buffer.concat([before, chunk as Buffer])
      if (wanted.some((one) => part.includes(one))) return true
      before = part.subarray(Math.max(0, part.length - overlap))
    }
  } catch (error) {
    // The server has removed it meanwhile.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
  return false
}
