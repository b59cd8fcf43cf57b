/** Drives the real server, kills it at random moments, starts it again, and checks what is left. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { checkServer, type Verdict } from './check.ts'
import { Callers } from './drive.ts'
import { Listener } from './listener.ts'
import { ServerProcess } from '../support/server-process.ts'

export type KillOptions = {
  readonly kills: number
  readonly seed: number
  readonly keys?: number
  readonly callers?: number
  readonly onKill?: (kill: number, acknowledged: number) => void
}

export type KillReport = Verdict & {
  readonly kills: number
  readonly acknowledged: number
  /** Answers that a client watched until they were cut off, a part of which it saw in the log. */
  readonly heard: number
}

/** Running turns are recorded every few milliseconds, so that a server lives long enough for it. */
const CONFIG = { limits: { checkpointMs: 5 } }
/** So often a server is killed only when the listener has seen something recorded. */
const HEARD_EVERY = 3

/** A small seeded generator: the moments repeat, as far as a real server lets them. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}

export async function killLoop(options: KillOptions): Promise<KillReport> {
  const { kills, seed, keys = 12, callers = 16 } = options
  const random = seeded(seed)
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-crash-'))
  const config = join(folder, 'holdfast.config.json')
  await writeFile(config, JSON.stringify(CONFIG))
  const start = (): Promise<ServerProcess> =>
    ServerProcess.start({ data: join(folder, 'data'), flags: ['--config', config] })
  const listener = new Listener()
  const crowd = new Callers({ keys, callers, random }, `n${seed}`)
  const running = crowd.run()
  try {
    for (let kill = 1; kill <= kills; kill += 1) {
      const server = await start()
      crowd.serverAt(server.url)
      const listening = listener.listenTo(server.url)
      if (kill % HEARD_EVERY === 0) await Promise.race([listener.sawMore(), listening])
      await new Promise((resolve) => setTimeout(resolve, 10 + random() * 190))
      // However slow it is, by its end it has had something to lose.
      await crowd.reached(kill)
      await server.kill()
      crowd.serverAt(null)
      await listening
      options.onKill?.(kill, crowd.acknowledged.length)
    }
    const server = await start()
    crowd.stop()
    crowd.serverAt(server.url)
    await running
    const verdict = await checkServer(server.url, crowd.acknowledged, listener.heard)
    await server.stop()
    const heard = listener.heard.filter(({ recorded }) => recorded !== '').length
    return { ...verdict, kills, acknowledged: crowd.acknowledged.length, heard }
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}
