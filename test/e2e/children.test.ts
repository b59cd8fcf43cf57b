/** Children of runners never outlive the process that started them, however that ends. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, it } from 'vitest'
import { isAlive } from '../support/processes.ts'

const child = new URL('../../dist/runners/child.js', import.meta.url)

/** Starts two children that are deaf to signals and to the end of their input, and stops one. */
const PARENT = `
  const { Child, childEnvironment } = await import(${JSON.stringify(child.href)})
  const deaf = "for (const s of ['SIGTERM', 'SIGHUP', 'SIGINT']) process.on(s, () => {});" +
    "setInterval(() => {}, 1000); console.log('up')"
  const start = async () => {
    const child = new Child({ command: process.execPath, args: ['-e', deaf],
      env: childEnvironment({}) })
    await new Promise((resolve) => child.stdout.once('data', resolve))
    return child
  }
  const [first, second] = [await start(), await start()]
  await first.stop(0)
  console.log(second.pid)
  setInterval(() => {}, 1000)
`

it.each(['SIGKILL', 'SIGTERM'] as const)(
  'a child is gone after %s of its parent',
  async (signal) => {
    const args = ['--input-type=module', '-e', PARENT]
    const parent = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] })
    const [said] = (await once(parent.stdout, 'data')) as [Buffer]
    const pid = Number(said)
    expect(isAlive(pid)).toBe(true)
    parent.kill(signal)
    await once(parent, 'exit')
    await expect.poll(() => isAlive(pid)).toBe(false)
  },
)
