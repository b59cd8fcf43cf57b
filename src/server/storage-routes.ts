/** The routes of what is stored: what retention would erase, and sessions as archives. */
import { HoldfastError, readableRow } from '../core/index.ts'
import type { Exchange } from '../doors/exchange.ts'
import { json, routes, sessionOfPath } from '../doors/route.ts'
import { archiveLines } from '../platform/archive-format.ts'
import { ARCHIVE_BYTES_MAX, readArchiveBytes } from '../platform/archive-file.ts'
import { contract, EXACT, oneOf, optional, orNull } from '../schema/contract.ts'
import { RetentionRules } from '../schema/retention.ts'
import { Type } from '../schema/typebox.ts'

const text = Type.String()
const count = Type.Integer({ minimum: 0 })
const rule = orNull(text, { description: 'Its name; null: the limit `retainMs`.' })

const PreviewRequest = Type.Object(optional({ rules: RetentionRules }), EXACT)
const readPreviewBody = contract(PreviewRequest)

const RetentionPreview = Type.Object({
  rules: Type.Array(
    Type.Object({ rule, kept: count, keptBytes: count, gone: count, goneBytes: count }),
    { description: 'Of each rule: how many closed sessions it keeps, and how many would go.' },
  ),
  sessions: Type.Array(
    Type.Object({
      id: text,
      key: orNull(text),
      agent: text,
      principal: text,
      bytes: count,
      closedAt: count,
      rule,
      beyond: oneOf(['ageMs', 'count', 'bytes'], { description: 'What it is beyond.' }),
    }),
    { description: 'Those that would go, the newest first; at most 1,000.' },
  ),
})

const PrincipalErased = Type.Object({
  principal: text,
  sessions: Type.Integer({ minimum: 0, description: 'How many were erased.' }),
  bytes: count,
  left: Type.Array(Type.Object({ session: text, what: Type.Array(text) }), {
    description: 'What agents wrote that could not be removed.',
  }),
  archives: orNull(count, { description: 'How many files; null: there is no archive.' }),
  remaining: Type.Array(Type.Object({ session: text, code: text }), {
    description: 'Those that could not be erased, and the code of the reason.',
  }),
})

const ARCHIVE_TYPE = 'application/jsonl'
const archive = { type: 'string', description: 'JSON lines, perhaps compressed by gzip.' }

export const storageRoutes = routes({
  'POST /v1/retention/preview': {
    name: 'previewRetention',
    summary: 'What retention would erase now, by the rules of the server or by others',
    operation: 'store.manage',
    body: PreviewRequest,
    answers: { 200: json('What would go, and what would stay.', RetentionPreview) },
    refusals: [413, 415],
    handle: async (exchange) => {
      const { rules } = readPreviewBody(await exchange.json())
      exchange.reply(200, await exchange.holdfast.previewRetention(rules))
    },
  },
  'DELETE /v1/principals/:principal': {
    name: 'erasePrincipal',
    summary: 'Close and erase all sessions of a principal',
    operation: 'store.manage',
    answers: { 200: json('What was erased, and what was not.', PrincipalErased) },
    handle: async (exchange) => {
      const [principal = ''] = exchange.params
      exchange.reply(200, await exchange.holdfast.erasePrincipal(principal))
    },
  },
  'GET /v1/sessions/:id/archive': {
    name: 'getArchive',
    summary: 'A closed session as an archive: its log, images and files',
    operation: 'session.export',
    answers: { 200: { description: 'JSON lines.', content: { [ARCHIVE_TYPE]: archive } } },
    refusals: [404, 409, 410],
    session: sessionOfPath,
    handle: getArchive,
  },
  'POST /v1/archives': {
    name: 'importArchive',
    summary: 'Make a session of an archive, closed and under its own id',
    operation: 'store.manage',
    historyBytesMax: ARCHIVE_BYTES_MAX,
    body: archive,
    bodyType: ARCHIVE_TYPE,
    answers: {
      201: json('It is there.', Type.Object({ id: text, events: count, bytes: count })),
    },
    refusals: [409, 413, 415],
    handle: importArchive,
  },
})

async function getArchive(exchange: Exchange): Promise<void> {
  const { session } = exchange
  await session.assertMay('session.export')
  const { store } = exchange.holdfast.authority
  const row = readableRow((await store.read(session.id, 0, 0)).row, session.id)
  if (row.state !== 'closed') {
    throw new HoldfastError('session_open', `session ${session.id} is open: close it first`)
  }
  exchange.begin(ARCHIVE_TYPE)
  for await (const line of archiveLines(row, store)) {
    if (exchange.response.destroyed) return
    await exchange.write(`${line}\n`)
  }
  exchange.response.end()
}

async function importArchive(exchange: Exchange): Promise<void> {
  const type = exchange.header('content-type')
  if (type !== ARCHIVE_TYPE && type !== 'application/gzip') {
    const message = `send the archive with the header content-type: ${ARCHIVE_TYPE}`
    throw new HoldfastError('unsupported_media_type', message)
  }
  const { authority } = exchange.holdfast
  const session = await readArchiveBytes(await exchange.body(), authority.clock.now())
  const bytes = await exchange.holdfast.restore(session)
  exchange.reply(201, { id: session.id, events: session.events.length, bytes })
}
