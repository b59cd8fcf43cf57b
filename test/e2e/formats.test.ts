/** Data of another version, or damaged: it is loaded if it can be, and refused clearly if not. */
import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openSqlite } from '../../src/stores/sqlite/driver.ts'
import { openHoldfast, type Agent, type Diagnostic, type Holdfast } from 'holdfast'
import { backupSqlite } from 'holdfast/sqlite'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { gate } from '../support/gate.ts'

const agents: Record<string, Agent> = {
  echo: async ({ text }) => text,
  asking: async (_turn, context) =>
    JSON.stringify(await context.ask({ kind: 'permission', question: 'May I?' })),
}

let folder: string
/** Of a server that was killed while a turn ran, two waited, and a client was attached. */
let killed: string
let sessionId: string
let file: string
let holdfast: Holdfast
let diagnostics: Diagnostic[]

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-formats-'))
  killed = join(folder, 'killed.db')
  const store = `sqlite:${join(folder, 'first.db')}`
  const before = await openHoldfast({ store, agents, limits: { snapshotEvery: 1 } })
  const session = await before.resolve({ key: 'a', agent: 'asking' })
  sessionId = session.id
  await session.createLink({ scopes: ['watch'] })
  await (await session.attach({ resumable: true })).leave()
  await session.attach({ answers: ['permission'] })
  const opened = gate()
  const asked = (async () => {
    for await (const event of session.events())
      if (event.type === 'ask.opened') return opened.open()
  })()
  await session.submit('first')
  await opened.opened
  await asked
  await session.submit('second', { idempotencyKey: 'one' })
  await backupSqlite({ file: join(folder, 'first.db'), to: killed })
  await before.close()
})
afterAll(() => rm(folder, { recursive: true }))

beforeEach(async () => {
  file = join(folder, `${Math.random()}.db`)
  await copyFile(killed, file)
  diagnostics = []
})
afterEach(() => holdfast.close())

async function open(): Promise<void> {
  holdfast = await openHoldfast({
    store: `sqlite:${file}`,
    agents: { ...agents, asking: agents['echo']! },
    onDiagnostic: (diagnostic) => diagnostics.push(diagnostic),
  })
}

function change<Row>(sql: string, ...values: (string | number)[]): Row[] {
  const database = openSqlite(file)
  try {
    return database.prepare(sql).all(...values) as Row[]
  } finally {
    database.close()
  }
}

function snapshotText(): string {
  const [row] = change<{ body: string }>('SELECT body FROM snapshots')
  return row?.body ?? ''
}

function setSnapshot(body: string): void {
  change('UPDATE snapshots SET body = ?', body)
}

type Folded = Record<string, unknown>
const folded = (): Folded => (JSON.parse(snapshotText()) as { session: Folded }).session

async function codes(): Promise<readonly string[]> {
  return diagnostics.map(({ code }) => code).filter((code) => /^snapshot_|_unreadable$/.test(code))
}

/** The whole life of a session that a killed server left. */
async function goesOn(): Promise<void> {
  const session = holdfast.session(sessionId)
  const { links, attachments, ended } = await session.state()
  expect([links.length, attachments.length, ended.length]).toEqual([1, 1, 1])
  const turn = await session.turn('third')
  expect(turn).toMatchObject({ state: 'done', reply: { text: 'third' } })
  const { events } = await session.read(0, 500)
  const types = events.map(({ body }) => (JSON.parse(body) as { type: string }).type)
  expect(types.filter((type) => type === 'turn.interrupted')).toHaveLength(1)
  expect(types.filter((type) => type === 'turn.done')).toHaveLength(2)
  await expect(session.submit('second', { idempotencyKey: 'one' })).resolves.toMatchObject({
    state: 'done',
  })
  expect((await session.close()).closed).toMatchObject({ reason: 'closed' })
  const { row } = await session.read(0, 0)
  expect(row?.state).toBe('closed')
}

describe('a snapshot', () => {
  it('is used if it is whole and of this format', async () => {
    await open()
    expect(await codes()).toEqual([])
    await goesOn()
  })

  const FIELDS = ['links', 'ended', 'asks', 'attachments', 'queued', 'closed', 'running', 'seq']
  for (const field of FIELDS) {
    it(`of an earlier version without ${field} is not used: the log is read instead`, async () => {
      const { [field]: _removed, ...rest } = folded()
      setSnapshot(JSON.stringify(rest))
      await open()
      expect(await codes()).toEqual(['snapshot_outdated'])
      await goesOn()
    })
  }

  const OUTDATED: Record<string, () => string> = {
    'as 0.1.0 wrote it': () => JSON.stringify(folded()),
    'of an older format': () => snapshotText().replace(/"format":\d+/, '"format":1'),
    'of a newer format': () => snapshotText().replace(/"format":\d+/, '"format":99'),
  }
  for (const [which, text] of Object.entries(OUTDATED)) {
    it(`${which} is not used: the log is read instead`, async () => {
      setSnapshot(text())
      await open()
      expect(await codes()).toEqual(['snapshot_outdated'])
      await goesOn()
    })
  }

  const DAMAGED: Record<string, () => string> = {
    'with one changed character': () => snapshotText().replace('"turns":1', '"turns":7'),
    'that was cut off': () => snapshotText().slice(0, -20),
    'that is not JSON': () => 'nothing',
    'that is empty': () => '',
  }
  for (const [which, text] of Object.entries(DAMAGED)) {
    it(`${which} is reported, and the log is read instead`, async () => {
      setSnapshot(text())
      await open()
      expect(await codes()).toEqual(['snapshot_damaged'])
      await goesOn()
    })
  }

  it('of another place in the log than its row says is reported, and not used', async () => {
    change('UPDATE snapshots SET seq = seq - 1')
    await open()
    expect(await codes()).toEqual(['snapshot_damaged'])
    await goesOn()
  })
})

describe('an event of a type that this version does not know', () => {
  /** Replaces the session's last event, which opened an ask or queued a turn. */
  function setLast(fields: object): { seq: number; body: string } {
    const [last] = change<{ seq: number }>('SELECT max(seq) AS seq FROM events')
    const { seq = 0 } = last ?? {}
    const body = JSON.stringify({ type: 'moon.rose', turn: 't1', ...fields, seq, at: 1 })
    change('UPDATE events SET body = ? WHERE seq = ?', body, seq)
    change('DELETE FROM snapshots')
    return { seq, body }
  }

  it('is passed over if it may be ignored', async () => {
    setLast({ ignorable: true })
    await open()
    const session = holdfast.session(sessionId)
    expect((await session.state()).running).toBeNull()
    expect(await session.turn('third')).toMatchObject({ state: 'done' })
    const types: string[] = []
    await session.close()
    for await (const { type } of session.events()) types.push(type)
    expect(types).toContain('moon.rose')
    expect(types.at(-1)).toBe('session.closed')
  })

  it('makes the session unreadable if not: every request says so, and nothing is written', async () => {
    const { seq, body } = setLast({})
    await open()
    const session = holdfast.session(sessionId)
    const refusal = { code: 'session_unreadable', details: { seq, type: 'moon.rose' } }
    await expect(session.state()).rejects.toMatchObject(refusal)
    await expect(session.turn('third')).rejects.toMatchObject(refusal)
    await expect(session.submit('third')).rejects.toMatchObject(refusal)
    await expect(session.cancelTurn(`t${seq - 3}`)).rejects.toMatchObject({
      code: expect.stringMatching(/session_unreadable|turn_unknown/),
    })
    await expect(session.attach()).rejects.toMatchObject(refusal)
    await expect(session.close()).rejects.toMatchObject(refusal)
    await expect(session.erase()).rejects.toMatchObject(refusal)
    await expect(holdfast.resolve({ key: 'a' })).rejects.toMatchObject(refusal)
    expect(await codes()).toEqual(['session_unreadable'])
    expect(diagnostics[0]?.facts).toMatchObject({ session: sessionId, seq, type: 'moon.rose' })
    const { row, events } = await session.read(0, 500)
    expect([row?.seq, row?.state, events.at(-1)?.body]).toEqual([seq, 'open', body])
    expect(await holdfast.turn({ key: 'b' }, 'other sessions go on')).toMatchObject({
      state: 'done',
    })
  })

  it('does not keep the session from a node that knows it', async () => {
    setLast({})
    await open()
    await expect(holdfast.session(sessionId).state()).rejects.toThrow('moon.rose')
    const { store } = holdfast.authority
    await store.beat('newer', 60_000)
    expect(await store.claim(sessionId, 'newer')).toMatchObject({ type: 'claimed' })
  })
})

describe('a damaged log', () => {
  it('is refused as a whole', async () => {
    change('DELETE FROM snapshots')
    change(`UPDATE events SET body = 'x' || body WHERE seq = 3`)
    await open()
    await expect(holdfast.session(sessionId).turn('third')).rejects.toMatchObject({
      code: 'session_unreadable',
      details: { seq: 3 },
    })
    expect(await codes()).toEqual(['session_unreadable'])
  })
})
