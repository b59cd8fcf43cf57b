/** Chromium by itself, on a port of its own: what the door is compared with. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { GUARDED, guarded } from './guarded.ts'

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--remote-debugging-port=0',
]

export type BareChromium = {
  /** The WebSocket of the browser. */
  readonly socketUrl: string
  close(): Promise<void>
}

export async function startBareChromium(): Promise<BareChromium> {
  const profile = await mkdtemp(join(tmpdir(), 'holdfast-bare-'))
  const child = guarded(
    spawn('/usr/bin/chromium', [...FLAGS, `--user-data-dir=${profile}`], {
      env: { ...process.env, TMPDIR: profile },
      stdio: ['ignore', 'ignore', 'pipe'],
      ...GUARDED,
    }),
  )
  const exited = once(child, 'exit')
  const socketUrl = await new Promise<string>((resolve, reject) => {
    let text = ''
    child.stderr.on('data', (chunk: Buffer) => {
      text += chunk.toString()
      const found = /DevTools listening on (ws:\S+)/.exec(text)?.[1]
      if (found !== undefined) resolve(found)
    })
    void exited.then(() => reject(new Error(`Chromium did not start: ${text}`)))
  })
  return {
    socketUrl,
    close: async () => {
      process.kill(-(child.pid ?? 0), 'SIGKILL')
      await exited
      await rm(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
    },
  }
}
