/**
 * The invariants over seeded worlds: reordered and lost answers, crashes, freezes, partitions,
 * jumping clocks, up to three nodes; and over worlds with sockets: lost, late, doubled and half-open
 * connections, pages and servers that crash. A failure prints its seed, and the command that shows
 * it in full.
 */
import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { check } from './checker.ts'
import { readable, type History } from './history.ts'
import { REAL } from './modules.ts'
import { MUTANTS, SEEDS_MAX } from './mutants.ts'
import { report } from './report.ts'
import { firstSeed, seedOf } from './seeds.ts'
import { checkHeld } from './wire/check-held.ts'
import { runHeldWorld } from './wire/held-world.ts'
import { checkWire } from './wire/checker.ts'
import { runWireWorld } from './wire/world.ts'
import { runWorld, type WorldOptions } from './world.ts'
import { runGuarded } from '../support/guarded.ts'

const WORLDS = 1_000
const WORLDS_PER_TEST = 250
const WIRE_WORLDS = 400
/** Of the planted bugs together, on a machine that has something else to do too. */
const HUNT_MS = 580_000
/** Which third of the planted bugs is tried: another one when a source has changed. */
const PARTS = 3

const FIRST = firstSeed()
const PART = FIRST % PARTS
const PLANTED = MUTANTS.filter((_, index) => index % PARTS === PART)
const SEEDS = `core worlds ${FIRST} to ${FIRST + WORLDS - 1}, wire and held worlds to ${FIRST + WIRE_WORLDS - 1}`

beforeAll(() => console.log(`simulated: ${SEEDS}; the same again with SIMULATION_SEED=${FIRST}`))

describe('the seeds', () => {
  it('are others when a source has changed, and else the same', () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-seeds-'))
    const seedWith = (text: string): number => {
      writeFileSync(join(folder, 'source.ts'), text)
      return seedOf([folder])
    }
    expect(seedWith('one')).not.toBe(seedWith('two'))
    expect(seedWith('one')).toBe(seedWith('one'))
    rmSync(folder, { recursive: true })
  })

  it('can be named', () => {
    expect(firstSeed('42')).toBe(42)
    expect(() => firstSeed('x')).toThrow('SIMULATION_SEED')
  })
})

describe('a simulated world', () => {
  for (let first = FIRST; first < FIRST + WORLDS; first += WORLDS_PER_TEST) {
    const last = first + WORLDS_PER_TEST - 1
    it(`keeps the invariants: seeds ${first} to ${last}`, { timeout: 120_000 }, async () => {
      for (let seed = first; seed <= last; seed += 1) await expectNoViolation({ seed })
    })
  }

  it('has the same history every time it is run from the same seed', async () => {
    for (const seed of [7, 11, 13]) {
      const [first, second] = [await world({ seed }), await world({ seed })]
      expect(fingerprint(first)).toBe(fingerprint(second))
    }
    expect(fingerprint(await world({ seed: 1 }))).not.toBe(fingerprint(await world({ seed: 2 })))
  })
})

describe('a simulated world with sockets', () => {
  const last = FIRST + WIRE_WORLDS - 1
  it(`keeps the invariants: seeds ${FIRST} to ${last}`, { timeout: 120_000 }, async () => {
    for (let seed = FIRST; seed <= last; seed += 1) {
      const history = await runWireWorld({ seed, modules: REAL })
      const violations = checkWire(history)
      if (violations.length > 0) expect.fail(report(history, violations, 'wire'))
    }
  })

  it('has the same history every time it is run from the same seed', async () => {
    for (const seed of [7, 11, 13]) {
      const again = async () => fingerprint(await runWireWorld({ seed, modules: REAL }))
      expect(await again()).toBe(await again())
    }
  })
})

describe('a simulated world with held connections', () => {
  const last = FIRST + WIRE_WORLDS - 1
  it(`keeps the invariants: seeds ${FIRST} to ${last}`, { timeout: 120_000 }, async () => {
    for (let seed = FIRST; seed <= last; seed += 1) {
      const history = await runHeldWorld({ seed, modules: REAL })
      const violations = checkHeld(history)
      if (violations.length > 0) expect.fail(report(history, violations, 'held'))
    }
  })

  it('has the same history every time it is run from the same seed', async () => {
    for (const seed of [7, 11, 13]) {
      const again = async () => fingerprint(await runHeldWorld({ seed, modules: REAL }))
      expect(await again()).toBe(await again())
    }
  })
})

describe('a crash', () => {
  it.each([1, 2, 3])('may come at any call of the store: small world %i', async (seed) => {
    const calls = (await world({ seed, size: 'small' })).of('store.sent').length
    expect(calls).toBeGreaterThan(20)
    for (let call = 1; call <= calls; call += 1) {
      for (const when of ['before', 'after'] as const) {
        await expectNoViolation({ seed, size: 'small', crashPoint: { call, when } })
      }
    }
  })
})

/** Planted in the compiled code, which is compiled for this, and run by Node alone. */
describe('a planted bug', () => {
  const root = fileURLToPath(new URL('../..', import.meta.url))
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-simulation-'))
  const lines = new Map<string, string>()

  beforeAll(async () => {
    const compiler = join(root, 'node_modules/typescript/bin/tsc')
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
    symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
    // What is wrong with the types is for the compiler's own check to say.
    const compiling = [compiler, '-p', root, '--outDir', folder]
    await runGuarded(process.execPath, compiling, { limitMs: HUNT_MS }).catch(() => undefined)
    const main = join(folder, 'test/simulation/main.js')
    const hunt = (part: string) =>
      runGuarded(process.execPath, [main, '--mutants', '--part', part], { limitMs: HUNT_MS })
    const halves = [PART, PART + PARTS].map((part) => `${part + 1}/${2 * PARTS}`)
    for (const { stdout } of await Promise.all(halves.map(huntOutput(hunt)))) {
      for (const line of stdout.split('\n')) lines.set(line.split(': ')[0] ?? '', line)
    }
  }, HUNT_MS + 20_000)

  afterAll(() => rmSync(folder, { recursive: true, force: true }))

  it.each(PLANTED)('is noticed: $name ($catches)', ({ name, catches }) => {
    const line = lines.get(name) ?? 'it was never run'
    expect(line).toContain(`caught by ${catches} in `)
  })

  it(`is one of at least 80, and each has ${SEEDS_MAX} seeds`, () => {
    expect(MUTANTS.length).toBeGreaterThanOrEqual(80)
    expect(new Set(MUTANTS.map(({ name }) => name)).size).toBe(MUTANTS.length)
  })
})

type Output = { readonly stdout: string }

/** One that is not caught makes the exit code 1; what was printed tells which. */
function huntOutput(hunt: (part: string) => Promise<Output>): (part: string) => Promise<Output> {
  return (part) => hunt(part).catch((failure: Output & { stderr: string }) => failure)
}

function world(options: Omit<WorldOptions, 'modules'>): Promise<History> {
  return runWorld({ modules: REAL, ...options })
}

async function expectNoViolation(options: Omit<WorldOptions, 'modules'>): Promise<void> {
  const history = await world(options)
  const violations = check(history)
  if (violations.length === 0) return
  expect.fail(`${JSON.stringify(options)}\n${report(history, violations, 'core')}`)
}

function fingerprint(history: History): string {
  const hash = createHash('sha256')
  for (const line of readable(history)) hash.update(`${line}\n`)
  return hash.digest('hex')
}
