/** A server that dies loses nothing that it acknowledged, and acknowledges nothing that it could lose. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { killLoop } from './kills.ts'
import { lostOf } from './listener.ts'
import { ServerProcess } from '../support/server-process.ts'
import { judgeTrace, postTurn, recordTrace } from './syncs.ts'

describe('kill -9', () => {
  it('25 times at random moments: all that was acknowledged or seen recorded is there once', async () => {
    const seed = Math.floor(Math.random() * 1e9)
    const report = await killLoop({ kills: 25, seed })
    expect(report.broken, `npm run crash -- --kills 25 --seed ${seed}`).toEqual([])
    expect(report.acknowledged).toBeGreaterThan(25)
    expect(report.sessions).toBe(13)
    expect(report.heard).toBeGreaterThanOrEqual(8)
  }, 600_000)

  it('would be noticed to lose what a client had seen in the log', () => {
    const heard = { session: 's', turn: 't2', whole: 'a b c d', shown: 'a b c ', recorded: 'a b ' }
    const log = (output: string, text: string) => [
      { seq: 3, type: 'turn.output', turn: 't2', text: output },
      { seq: 4, type: 'message.added', turn: 't2', text },
      { seq: 5, type: 'turn.interrupted', turn: 't2' },
    ]
    expect(lostOf(heard, log('a b c ', 'a b c '))).toEqual([])
    expect(lostOf(heard, log('a ', 'a '))).toHaveLength(1)
    expect(lostOf(heard, log('a b c ', 'a b '))).toHaveLength(1)
    expect(lostOf(heard, log('a b x', 'a b x'))).toHaveLength(1)
  })
})

describe.runIf(process.platform === 'linux')('the disk, seen with strace', () => {
  let folder: string
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'holdfast-sync-'))
  })
  afterEach(() => rm(folder, { recursive: true, force: true }))

  it('lets no acknowledgement leave before its commit is synced', async () => {
    const trace = await recordTrace(folder, 150)
    const report = judgeTrace(trace)
    expect(report.acknowledged).toBe(150)
    expect(report.early).toEqual([])
    // The check can fail: the same trace without its syncs is full of early answers.
    const unsynced = trace.filter((line) => !/f(?:data)?sync/.test(line))
    expect(judgeTrace(unsynced).early).toHaveLength(150)
  }, 300_000)

  it('stops when a sync fails, acknowledges nothing after it, and has the rest on restart', async () => {
    const inject = 'inject=fdatasync,fsync:error=EIO:when=40+'
    const under = ['strace', '-f', '-o', '/dev/null', '-e', 'trace=fdatasync,fsync', '-e', inject]
    const failing = await ServerProcess.start({ data: join(folder, 'data'), under })
    const acknowledged: string[] = []
    let refusal: unknown = null
    for (let n = 1; refusal === null; n += 1) {
      try {
        const response = await postTurn(failing.url, 'key', `turn-${n}`)
        const body = (await response.json()) as any
        if (response.status === 200) acknowledged.push(body.turn.reply.text)
        else refusal = body.code
      } catch (error) {
        refusal = error
      }
    }
    expect(acknowledged.length).toBeGreaterThan(5)
    expect(await failing.exited).toBe(1)
    expect(failing.output.join('')).toMatch(/disk failed/)
    const healed = await ServerProcess.start({ data: join(folder, 'data') })
    const { body } = await readTranscript(healed.url)
    for (const text of acknowledged) expect(body).toContain(`"role":"assistant","text":"${text}"`)
    expect((await postTurn(healed.url, 'key', 'again')).status).toBe(200)
    await healed.stop()
  }, 300_000)
})

async function readTranscript(url: string): Promise<{ body: string }> {
  const list = (await (await fetch(`${url}/v1/sessions?key=key`)).json()) as any
  const response = await fetch(`${url}/v1/sessions/${list.sessions[0].id}/transcript`)
  return { body: await response.text() }
}
