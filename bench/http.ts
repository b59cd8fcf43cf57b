/**
 * Durable keyed turns over HTTP: Holdfast beside what this machine can do at most, beside itself
 * without a part of its safety, and beside what a user could pick instead. All take the same load
 * from the same client, one after the other in each round.
 */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Child } from './child.ts'
import {
  BARE,
  BARE_COMMITS,
  HOLDFAST,
  LAYERS,
  PEERS,
  sampleOf,
  start,
  type Contender,
  type Sample,
} from './contenders.ts'
import { CALLERS, loadOn } from './http-load.ts'
import { count, median, percentile, perSecond } from './measure.ts'
import { installPeers } from './peers.ts'
import { spread, type Results } from './results.ts'

export type HttpBench = {
  readonly folder: string
  readonly seconds: number
  readonly rounds: number
  readonly results: Results
}

type Figure = {
  readonly perSecond: number
  readonly p50: number
  readonly p99: number
  /** Microseconds of CPU for a turn, of the server and all programs behind it. */
  readonly cpu: number
}

const KEYS = [200, 1] as const
type Keys = (typeof KEYS)[number]
/** By contender, the rounds. */
type Figures = ReadonlyMap<Contender, Readonly<Record<Keys, Figure[]>>>

export async function benchHttp(bench: HttpBench): Promise<void> {
  const figures = await measureAll(bench, [BARE, BARE_COMMITS, HOLDFAST])
  tell(bench.results, 'Durable keyed turns over HTTP, 64 callers', figures)
  judge(bench.results, figures)
}

export async function benchLayers(bench: HttpBench): Promise<void> {
  const figures = await measureAll(bench, [BARE, HOLDFAST, ...LAYERS])
  tell(bench.results, 'What each layer costs, over HTTP', figures)
}

export async function benchPeers(bench: HttpBench): Promise<void> {
  if (!installPeers()) throw new Error('the peers could not be installed')
  const figures = await measureAll(bench, [BARE, HOLDFAST, ...PEERS])
  tell(bench.results, 'Holdfast and what a user could pick instead, over HTTP', figures)
  for (const peer of PEERS) {
    for (const keys of KEYS) {
      const what = `HTTP turns, ${keysText(keys)}, times ${peer.name}`
      const ratios = roundRatios(figures, HOLDFAST, peer, keys, 'perSecond')
      if (ratios.length > 0) bench.results.judge(what, ratios, null)
    }
  }
  const [bullmq] = PEERS
  if (bullmq === undefined) return
  const p99 = roundRatios(figures, HOLDFAST, bullmq, 200, 'p99')
  if (p99.length > 0) bench.results.judge('p99, 200 keys, of BullMQ', p99, { most: 0.33 })
}

/** A contender that cannot run here is left out, and named. */
async function measureAll(bench: HttpBench, contenders: readonly Contender[]): Promise<Figures> {
  const figures = new Map(contenders.map((one) => [one, noFigures()]))
  const sample = await sampleHoldfast(bench)
  for (let round = 0; round < bench.rounds; round += 1) {
    for (const [contender, own] of figures) {
      const folder = join(bench.folder, `http-${contender.script}-${figures.size}-${round}`)
      try {
        await measure(bench, contender, own, { folder, sample })
      } catch (error) {
        console.log(`  ${contender.name}: left out: ${String(error)}`)
        figures.delete(contender)
      }
    }
  }
  return figures
}

async function sampleHoldfast({ folder }: HttpBench): Promise<Sample> {
  const place = join(folder, 'sample')
  await mkdir(place, { recursive: true })
  const server = start(HOLDFAST, place)
  try {
    return await sampleOf(await server.next<number>())
  } finally {
    await server.end()
  }
}

type Place = { readonly folder: string; readonly sample: Sample }

async function measure(
  { seconds }: HttpBench,
  contender: Contender,
  figures: Record<Keys, Figure[]>,
  { folder, sample }: Place,
): Promise<void> {
  await mkdir(folder, { recursive: true })
  const server = start(contender, folder, sample)
  try {
    const port = await server.next<number>()
    for (const keys of KEYS) {
      const figure = await loadedBy(server, contender, { port, keys, seconds })
      figures[keys].push(figure)
      console.log(`  ${contender.name}, ${keysText(keys)}: ${described(figure)}`)
    }
  } finally {
    await server.end()
  }
}

async function loadedBy(
  server: Child,
  { path }: Contender,
  load: { readonly port: number; readonly keys: number; readonly seconds: number },
): Promise<Figure> {
  const done = await loadOn(server, {
    ...load,
    callers: CALLERS,
    ...(path === undefined ? {} : { path }),
  })
  return {
    perSecond: perSecond(done),
    p50: percentile(done.latencies, 0.5),
    p99: percentile(done.latencies, 0.99),
    cpu: done.cpu,
  }
}

function tell(results: Results, title: string, figures: Figures): void {
  const columns = ['', 'kept', '200 keys', 'p99', 'CPU', '1 key', 'p99', 'CPU', 'of bare HTTP']
  const rows = [...figures].map(([contender, own]) => {
    const ofBare = KEYS.map((keys) =>
      median(roundRatios(figures, contender, BARE, keys, 'perSecond')),
    )
    return [
      contender.name,
      contender.promise,
      ...KEYS.flatMap((keys) => cells(own[keys])),
      ofBare.map((ratio) => ratio.toFixed(2)).join(' and '),
    ]
  })
  results.table(title, columns, rows)
}

function cells(rounds: readonly Figure[]): readonly string[] {
  const rates = rounds.map((one) => one.perSecond)
  const between = rates.length < 2 ? '' : ` (${spread(rates)})`
  return [
    `${count(median(rates))}/s${between}`,
    `${median(rounds.map(({ p99 }) => p99)).toFixed(1)} ms`,
    `${median(rounds.map(({ cpu }) => cpu)).toFixed(0)} µs`,
  ]
}

function judge(results: Results, figures: Figures): void {
  const of = (base: Contender, keys: Keys, name: keyof Figure): readonly number[] =>
    roundRatios(figures, HOLDFAST, base, keys, name)
  results.judge('HTTP turns, 200 keys, of bare HTTP', of(BARE, 200, 'perSecond'), { least: 0.7 })
  results.judge('HTTP turns, 1 key, of bare HTTP with commits', of(BARE_COMMITS, 1, 'perSecond'), {
    least: 0.8,
  })
  const cpu = figures.get(HOLDFAST)?.[200].map((one) => one.cpu) ?? []
  results.judge('CPU of a turn over HTTP, 200 keys, µs', cpu, { most: 150 })
}

/** Round by round; empty if one of them was left out. */
function roundRatios(
  figures: Figures,
  one: Contender,
  base: Contender,
  keys: Keys,
  name: keyof Figure,
): readonly number[] {
  const [own, other] = [figures.get(one)?.[keys] ?? [], figures.get(base)?.[keys] ?? []]
  return own.flatMap((figure, round) => {
    const against = other[round]
    return against === undefined ? [] : [figure[name] / against[name]]
  })
}

const keysText = (keys: number): string => (keys === 1 ? '1 key' : `${keys} keys`)

const described = ({ perSecond: rate, p50, p99, cpu }: Figure): string =>
  `${count(rate)}/s, p50 ${p50.toFixed(2)} ms, p99 ${p99.toFixed(2)} ms, CPU ${cpu.toFixed(0)} µs a turn`

const noFigures = (): Record<Keys, Figure[]> => ({ 200: [], 1: [] })
