/**
 * `npm run profile`: where the server's CPU goes. Puts one of the benchmark's loads on a server that
 * V8 profiles, writes a profile of each of its threads, and prints their hottest functions.
 */
import { createHash } from 'node:crypto'
import { mkdtemp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { Child } from './child.ts'
import { loadOn } from './http-load.ts'
import { describeLoad } from './measure.ts'

const HELP = `npm run profile -- http [--keys N] [--callers N] [--seconds N] [--owners] [--top N] [--out FOLDER]
Puts durable turns over HTTP on a server (200 keys, 64 callers) and profiles it. --owners: with tokens of 16 principals and quotas.
Writes FOLDER/*.cpuprofile (default: profiles), for Chrome's DevTools or an editor, one of each thread, and prints the functions that took
most time by themselves.`

const SAMPLE_MICROS = 250
const PRINCIPALS = 16

type Frame = { readonly functionName: string; readonly url: string; readonly lineNumber: number }
type Profile = {
  readonly nodes: readonly { readonly id: number; readonly callFrame: Frame }[]
  readonly samples: readonly number[]
  readonly timeDeltas: readonly number[]
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    keys: { type: 'string', default: '200' },
    callers: { type: 'string', default: '64' },
    seconds: { type: 'string', default: '5' },
    owners: { type: 'boolean', default: false },
    top: { type: 'string', default: '10' },
    out: { type: 'string', default: 'profiles' },
    help: { type: 'boolean', default: false },
  },
})

if (values.help || positionals[0] !== 'http') {
  console.log(HELP)
  process.exitCode = values.help ? 0 : 2
} else {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-profile-'))
  try {
    const out = resolve(values.out)
    await mkdir(out, { recursive: true })
    await profileHttp(folder, out)
  } finally {
    await rm(folder, { recursive: true })
  }
}

async function profileHttp(folder: string, out: string): Promise<void> {
  const before = new Set(await readdir(out))
  const { tokens, given } = values.owners ? await withOwners(folder) : { tokens: [], given: {} }
  const flags = ['--cpu-prof', `--cpu-prof-dir=${out}`, `--cpu-prof-interval=${SAMPLE_MICROS}`]
  const store = `sqlite:${join(folder, 'profiled.db')}`
  const server = new Child('holdfast-http', [JSON.stringify({ store, ...given })], { flags })
  const [callers, keys, seconds] = [values.callers, values.keys, values.seconds].map(Number)
  const port = await server.next<number>()
  const { cpu, ...load } = await loadOn(server, {
    ...{ port, callers: callers ?? 1, keys: keys ?? 1, seconds: seconds ?? 1, tokens },
  })
  await server.end()
  console.log(`${describeLoad(load)}; server CPU ${cpu.toFixed(1)} µs a turn`)
  for (const name of await readdir(out)) {
    if (!before.has(name)) await printHottest(join(out, name), load.turns)
  }
}

async function withOwners(folder: string) {
  const tokens = Array.from({ length: PRINCIPALS }, (_, index) => `hf_profiled-token-${index}`)
  const entries = tokens.map((token, index) => ({
    ...{ name: `token-${index}`, scopes: ['talk'], principal: `p${index}`, groups: ['team'] },
    sha256: createHash('sha256').update(token).digest('hex'),
  }))
  const file = join(folder, 'tokens.json')
  await writeFile(file, JSON.stringify({ version: 3, tokens: entries }), { mode: 0o600 })
  const quotas = { default: { turnsPerMinute: 100_000_000, runningTurns: 10_000 } }
  return { tokens, given: { tokens: file, quotas } }
}

/** Self time: what a function took without the functions that it called. */
async function printHottest(file: string, turns: number): Promise<void> {
  const { nodes, samples, timeDeltas } = JSON.parse(await readFile(file, 'utf8')) as Profile
  const names = new Map(nodes.map(({ id, callFrame }) => [id, nameOf(callFrame)]))
  const micros = new Map<string, number>()
  samples.forEach((id, index) => {
    const name = names.get(id) ?? ''
    micros.set(name, (micros.get(name) ?? 0) + (timeDeltas[index] ?? 0))
  })
  for (const name of ['(idle) ', '(root) ']) micros.delete(name)
  const total = [...micros.values()].reduce((sum, value) => sum + value, 0)
  console.log(`\n${file}: ${(total / 1e6).toFixed(1)} s busy`)
  const hottest = [...micros].toSorted(([, a], [, b]) => b - a).slice(0, Number(values.top))
  for (const [name, value] of hottest) {
    const share = ((100 * value) / total).toFixed(1).padStart(5)
    console.log(`  ${share} %  ${(value / turns).toFixed(2).padStart(6)} µs a turn  ${name}`)
  }
}

function nameOf({ functionName, url, lineNumber }: Frame): string {
  const place =
    url === '' ? '' : `${url.replace(/^.*\/(?=(dist|node_modules)\/)/, '')}:${lineNumber + 1}`
  return `${functionName === '' ? '(anonymous)' : functionName} ${place}`
}
