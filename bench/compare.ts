/**
 * `npm run bench -- --compare REV`: this checkout against an older commit, round by round and in
 * changing order, so that the machine's mood counts for both. The programs that measure are these,
 * the package that they measure is each one's own.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { cp, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Child } from './child.ts'
import { CALLERS, loadOn } from './http-load.ts'
import { count, perSecond, type Load } from './measure.ts'
import type { HttpBench } from './http.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

type Measured = { readonly perSecond: number; readonly cpu: number }
type Case = {
  readonly name: string
  readonly measure: (root: string, folder: string, seconds: number) => Promise<Measured>
}

const CASES: readonly Case[] = [
  { name: 'over HTTP, 200 keys', measure: overHttp(200) },
  { name: 'over HTTP, 1 key', measure: overHttp(1) },
  { name: 'in process, 200 keys', measure: inProcess(200) },
  { name: 'in process, 1 key', measure: inProcess(1) },
]

export async function compare(bench: HttpBench, revision: string): Promise<void> {
  const { folder, rounds, seconds, results } = bench
  const commit = git('rev-parse', '--short', `${revision}^{commit}`)
  const before = join(folder, 'before')
  await checkOut(commit, before)
  try {
    console.log(`\nThis checkout against ${commit}:`)
    for (const one of CASES) {
      const ratios: Record<keyof Measured, number[]> = { perSecond: [], cpu: [] }
      for (let round = 0; round < rounds; round += 1) {
        const places = { before, now: ROOT }
        const order = round % 2 === 0 ? (['before', 'now'] as const) : (['now', 'before'] as const)
        const seen: Partial<Record<keyof typeof places, Measured>> = {}
        for (const place of order) {
          const data = join(folder, `${one.name.replaceAll(/\W+/g, '-')}-${place}-${round}`)
          await mkdir(data)
          seen[place] = await one.measure(places[place], data, seconds)
          const { perSecond: rate, cpu } = seen[place]
          console.log(`  ${one.name}, ${place}: ${count(rate)}/s, ${cpu.toFixed(1)} µs CPU a turn`)
        }
        for (const name of ['perSecond', 'cpu'] as const) {
          ratios[name].push((seen.now?.[name] ?? 0) / (seen.before?.[name] ?? 1))
        }
      }
      results.judge(`turns ${one.name}, of ${commit}`, ratios.perSecond, null)
      results.judge(`CPU of a turn ${one.name}, of ${commit}`, ratios.cpu, null)
    }
  } finally {
    git('worktree', 'remove', '--force', before)
  }
}

async function checkOut(commit: string, folder: string): Promise<void> {
  console.log(`\nbuilding ${commit} …`)
  git('worktree', 'add', '--detach', folder, commit)
  for (const args of [
    ['ci', '--include=dev'],
    ['run', 'build'],
  ]) {
    const flags = ['--no-audit', '--no-fund', '--loglevel=error']
    const { status } = spawnSync('npm', [...args, ...flags], { cwd: folder, stdio: 'ignore' })
    if (status !== 0) throw new Error(`npm ${args.join(' ')} failed for ${commit}`)
  }
  await cp(join(ROOT, '.build'), join(folder, '.build'), { recursive: true })
}

function git(...args: string[]): string {
  return execFileSync('git', args, {
    cwd: ROOT,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  }).trim()
}

function overHttp(keys: number): Case['measure'] {
  return async (root, folder, seconds) => {
    const store = `sqlite:${join(folder, 'compared.db')}`
    const server = new Child('holdfast-http', [JSON.stringify({ store })], { root })
    try {
      const port = await server.next<number>()
      // Its code is compiled while it is used: it is used once before it is measured.
      await loadOn(server, { port, callers: CALLERS, keys, seconds: 1 })
      const { cpu, ...load } = await loadOn(server, { port, callers: CALLERS, keys, seconds })
      return { perSecond: perSecond(load), cpu }
    } finally {
      await server.end()
    }
  }
}

function inProcess(keys: number): Case['measure'] {
  return async (root, folder, seconds) => {
    const callers = keys === 1 ? CALLERS : keys
    const args = [join(folder, 'compared.db'), ...[keys, callers, seconds].map(String)]
    const child = new Child('holdfast-embedded', args, { root })
    const { cpu, ...load } = await child.next<Load & { readonly cpu: number }>()
    return { perSecond: perSecond(load), cpu }
  }
}
