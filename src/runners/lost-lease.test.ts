/**
 * A node that has lost its lease: what works for its sessions is ended at once, whatever time it
 * was given to end by itself, for another node is about to go on (I2, I5).
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { gate, until } from '../../test/support/gate.ts'
import { isAlive } from '../../test/support/processes.ts'
import { startStubOpenAi } from '../../test/support/stub-openai.ts'
import type { Holdfast, Limits, Runner, SessionHandle } from '../core/index.ts'
import { openHoldfast } from '../open.ts'
import { MemoryStore } from '../stores/memory.ts'
import { acpRunner, type AcpOptions } from './acp/index.ts'
import { systemClock } from '../platform/clock.ts'
import { openaiRunner } from './openai/index.ts'
import { processRunner } from './process/index.ts'

const AGENT = fileURLToPath(new URL('../../test/support/acp-agent.mjs', import.meta.url))
/** What an agent has to end by itself: for ever. */
const FOREVER_MS = 3_600_000
const LIMITS = { leaseMs: 5_000, cancelGraceMs: FOREVER_MS }

let folder: string
let holdfast: Holdfast
let store: MemoryStore

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-lost-'))
  store = new MemoryStore()
})
afterEach(async () => {
  vi.restoreAllMocks()
  await holdfast.close()
  rmSync(folder, { recursive: true, force: true })
})

async function sessionOf(agent: Runner, limits: Partial<Limits> = {}): Promise<SessionHandle> {
  holdfast = await openHoldfast({ store, agents: { agent }, limits: { ...LIMITS, ...limits } })
  return holdfast.resolve({ key: 'a' })
}

/** As if the process had been frozen past its lease: it notices when it is next asked. */
async function loseLease(): Promise<void> {
  const later = (): number => performance.now() + LIMITS.leaseMs
  vi.spyOn(systemClock, 'monotonic').mockImplementation(later)
  await expect(holdfast.resolve()).rejects.toMatchObject({ code: 'lease_lost' })
}

async function saying(turn: AsyncIterable<string>, text: string): Promise<void> {
  for await (const part of turn) if (part.includes(text)) return
  throw new Error(`it never said ${text}`)
}

/** Asks for the turn's end, which does not come by itself. */
async function beginToCancel(session: SessionHandle): Promise<void> {
  const { running } = await session.state()
  session.cancelTurn(running?.id ?? '').catch(() => undefined)
}

describe('an agent that speaks ACP', () => {
  const tiny = (options: Partial<AcpOptions> = {}): Runner =>
    acpRunner({
      command: process.execPath,
      args: [AGENT],
      env: { KEEP: folder, RESTORE: 'load' },
      cancelMs: FOREVER_MS,
      ...options,
    })
  const pids = (): number[] =>
    readFileSync(join(folder, 'starts'), 'utf8').trim().split('\n').map(Number)
  const areGone = (): boolean => !pids().some(isAlive)

  it.each([true, false])(
    'is killed in the middle of a turn; perSession: %s',
    async (perSession) => {
      const session = await sessionOf(tiny({ perSession }))
      const turn = session.turn('deaf')
      await saying(turn, 'deaf')
      expect(areGone()).toBe(false)
      await loseLease()
      await expect(turn).rejects.toMatchObject({ code: 'lease_lost' })
      await until(areGone)
    },
  )

  it('is killed although it was asked to cancel its turn before', async () => {
    const session = await sessionOf(tiny())
    const turn = session.turn('deaf')
    await saying(turn, 'deaf')
    await beginToCancel(session)
    await loseLease()
    await expect(turn).rejects.toMatchObject({ code: 'lease_lost' })
    await until(areGone)
  })

  it('is not kept for the next turn, for others may have gone on with its session', async () => {
    const session = await sessionOf(tiny())
    expect((await session.turn('one')).reply?.text).toBe('1 one')
    await loseLease()
    await until(areGone)
    await until(() => (holdfast.authority.lease?.leftMs ?? 0) > 0)
    const again = await holdfast.resolve({ key: 'a' })
    expect((await again.turn('two')).reply?.text).toBe('2 two')
    expect(pids()).toHaveLength(2)
  })

  it('is killed when its session alone turns out to be another node’s', async () => {
    const session = await sessionOf(tiny(), { cancelGraceMs: 10 })
    const turn = session.turn('deaf')
    await saying(turn, 'deaf')
    store.append = (appends) => Promise.resolve(appends.map(() => 'stale' as const))
    await beginToCancel(session)
    await expect(turn).rejects.toMatchObject({ code: 'stale_epoch' })
    await until(areGone)
  })
})

describe('a program', () => {
  const DEAF = `process.on('SIGTERM', () => console.log('asked'))
    console.log(process.pid); setInterval(() => {}, 1000)`
  const deaf = (): Runner =>
    processRunner({
      command: process.execPath,
      args: ['-e', DEAF],
      folder,
      killGraceMs: FOREVER_MS,
    })

  it('is killed although it was asked to end before, and had its time for that', async () => {
    const session = await sessionOf(deaf())
    const turn = session.turn('go')
    let pid = 0
    for await (const part of turn) {
      if (pid !== 0) break
      pid = Number(part)
      await beginToCancel(session)
    }
    expect(isAlive(pid)).toBe(true)
    await loseLease()
    await expect(turn).rejects.toMatchObject({ code: 'lease_lost' })
    await until(() => !isAlive(pid))
  })

  it('is killed when it does not end in time although the node is being stopped', async () => {
    const agents = { agent: deaf() }
    holdfast = await openHoldfast({ store, agents, limits: { runnerCloseMs: 50 } })
    let pid = 0
    for await (const part of (await holdfast.resolve()).turn('go')) {
      pid = Number(part)
      break
    }
    await holdfast.close()
    await until(() => !isAlive(pid))
  })
})

describe('a request to a model', () => {
  it('is given up', async () => {
    const model = await startStubOpenAi()
    const [asked, left] = [gate(), gate()]
    model.answer = () => (response) => {
      response.once('close', () => left.open())
      response.write('data: {"choices":[{"delta":{"content":"so"}}]}\n\n', () => asked.open())
    }
    const session = await sessionOf(openaiRunner({ baseUrl: model.url, model: 'stub-model' }))
    const turn = session.turn('go')
    await asked.opened
    await loseLease()
    await expect(turn).rejects.toMatchObject({ code: 'lease_lost' })
    await left.opened
    await model.close()
  })
})
