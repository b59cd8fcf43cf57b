/** `holdfast retention` and `import`: what is kept, and archives of what is not. */
import { readFile } from 'node:fs/promises'
import { readConfig } from '../config/index.ts'
import type { RestoredSession, RetentionPreview, Store } from '../core/index.ts'
import { readArchiveFile } from '../platform/archive-file.ts'
import { systemClock } from '../platform/clock.ts'
import { openPostgresStore } from '../stores/postgres/index.ts'
import { openSqliteStore } from '../stores/sqlite/index.ts'
import { defineCommand, text, toggle, UsageError, type FlagValues } from './command.ts'
import { isoTime, note, printJson, printTable, say } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'
import { isPostgres, storeFile, storeName } from './stores.ts'

export const retention = defineCommand({
  name: 'retention',
  summary:
    'Tells which closed sessions of a running server retention would erase now. Erases nothing: ' +
    'the server does that by itself.',
  flags: {
    config: text('FILE', 'by the rules of this configuration').showing('those of the server'),
    json: toggle('JSON instead of tables'),
    ...REMOTE_FLAGS,
  },
  async run({ config, json, ...values }) {
    const remote = new Remote(values)
    const given = config === null ? {} : await rulesOf(config)
    const found = await remote.json<RetentionPreview>('/v1/retention/preview', 'POST', given)
    if (json) return printJson([found])
    printTable(found.rules, {
      RULE: ({ rule }) => rule ?? '(retainMs)',
      STAY: ({ kept }) => kept,
      'THEIR BYTES': ({ keptBytes }) => keptBytes,
      GO: ({ gone }) => gone,
      BYTES: ({ goneBytes }) => goneBytes,
    })
    if (found.sessions.length === 0) return say('nothing would go')
    console.log()
    printTable(found.sessions, {
      ID: ({ id }) => id,
      KEY: ({ key }) => key,
      AGENT: ({ agent }) => agent,
      CLOSED: ({ closedAt }) => isoTime(closedAt),
      BYTES: ({ bytes }) => bytes,
      RULE: ({ rule }) => rule ?? '(retainMs)',
      BEYOND: ({ beyond }) => beyond,
    })
  },
})

async function rulesOf(file: string) {
  const { retention: configured } = await readConfig(process.cwd(), file)
  return { rules: configured.rules ?? [] }
}

const IMPORT_FLAGS = {
  data: text('DIR', "a SQLite store's folder, instead of a running server; none may use it"),
  store: text('STORE', 'instead of --data: sqlite:FILE or postgres://…; nodes may use it'),
  json: toggle('one JSON object per session, for programs'),
  ...REMOTE_FLAGS,
}

export const importArchives = defineCommand({
  name: 'import',
  operands: { usage: 'FILE…', takes: 'FILEs', min: 1, max: Infinity },
  summary:
    'Makes closed sessions of archives, each under its own id. What is there already is not ' +
    'changed, and refused. Reads all of a file before it writes anything.',
  flags: IMPORT_FLAGS,
  async run({ json, ...values }, files) {
    const store = await openTarget(values)
    const remote = store === null ? new Remote(values) : null
    let failed = 0
    try {
      for (const file of files) {
        const result = await importOne(file, store, remote)
        if (result.error !== null) failed += 1
        if (json) printJson([result])
        else if (result.error === null)
          say(`${file}: session ${result.id}, ${result.events} events`)
        else note(`${file}: ${result.error}`)
      }
    } finally {
      await store?.close()
    }
    return failed === 0 ? 0 : 1
  },
})

/** The store that is written to without a server; null: a server is asked. */
async function openTarget(
  values: Omit<FlagValues<typeof IMPORT_FLAGS>, 'json'>,
): Promise<Store | null> {
  if (values.data === null && values.store === null) return null
  if (values.url !== null) throw new UsageError('--url goes with neither --data nor --store')
  const name = storeName(values)
  return isPostgres(name)
    ? openPostgresStore({ url: name })
    : openSqliteStore({ file: storeFile(values) })
}

/** One that fails keeps no other from being imported. */
async function importOne(file: string, store: Store | null, remote: Remote | null) {
  try {
    const session = await readArchiveFile(file, systemClock.now())
    if (remote === null) await restore(store, session)
    else await send(remote, file)
    return { file, id: session.id, events: session.events.length, error: null }
  } catch (error) {
    return { file, id: null, events: 0, error: (error as Error).message }
  }
}

async function restore(store: Store | null, session: RestoredSession): Promise<void> {
  if ((await store?.restore?.(session)) === true) return
  throw new Error(`there is a session ${session.id}: nothing was changed`)
}

/** As it is in the file, so that what is compressed travels compressed. */
async function send(remote: Remote, file: string): Promise<void> {
  const body = await readFile(file)
  const type = body[0] === 0x1f && body[1] === 0x8b ? 'application/gzip' : 'application/jsonl'
  await remote.call('/v1/archives', { method: 'POST', headers: { 'content-type': type }, body })
}
