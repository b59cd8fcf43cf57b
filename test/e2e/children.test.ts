/** Children of runners never outlive the process that started them, however that ends. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { expect, it } from 'vitest'
import { killOrphans } from '../../src/platform/processes.ts'
import { GUARDED, guarded } from '../support/guarded.ts'
import { isAlive } from '../support/processes.ts'

const child = new URL('../../dist/platform/child.js', import.meta.url)

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
    const parent = guarded(
      spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'], ...GUARDED }),
    )
    const [said] = (await once(parent.stdout, 'data')) as [Buffer]
    const pid = Number(said)
    expect(isAlive(pid)).toBe(true)
    parent.kill(signal)
    await once(parent, 'exit')
    await expect.poll(() => isAlive(pid)).toBe(false)
  },
)

const processes = new URL('../../dist/platform/processes.js', import.meta.url)

/** A marked child whose own child has left its group, as the shell of an agent's tool does. */
const FAMILY = `
  const { Child, childEnvironment } = await import(${JSON.stringify(child.href)})
  const { markOf } = await import(${JSON.stringify(processes.href)})
  const leave = "const { spawn } = require('node:child_process');" +
    "const far = spawn('sleep', ['600'], { detached: true, stdio: 'ignore' }); console.log(far.pid);" +
    "setInterval(() => {}, 1000)"
  const child = new Child({ command: process.execPath, args: ['-e', leave],
    env: childEnvironment({}), mark: markOf(process.argv[1]) })
  const [far] = await new Promise((resolve) => child.stdout.once('data', (text) => resolve([text])))
  console.log(String(far).trim())
  process.stdin.once('data', async () => {
    await child.stop(0)
    console.log('stopped')
  })
`

async function family(folder: string) {
  const args = ['--input-type=module', '-e', FAMILY, folder]
  const parent = guarded(
    spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'], ...GUARDED }),
  )
  const [said] = (await once(parent.stdout, 'data')) as [Buffer]
  return { parent, far: Number(said) }
}

const onLinux = it.runIf(process.platform === 'linux')

onLinux('what has left the group of a child goes with the child', async () => {
  const { parent, far } = await family('one')
  expect(isAlive(far)).toBe(true)
  parent.stdin.write('stop\n')
  await once(parent.stdout, 'data')
  await expect.poll(() => isAlive(far)).toBe(false)
  parent.kill('SIGKILL')
})

onLinux('what has left the group of a child is gone after kill -9 of its parent', async () => {
  const { parent, far } = await family('two')
  expect(isAlive(far)).toBe(true)
  parent.kill('SIGKILL')
  await expect.poll(() => isAlive(far)).toBe(false)
})

onLinux('what another server on the same folder has started is left alone', async () => {
  const { parent, far } = await family('three')
  expect(await killOrphans('three')).toBe(0)
  expect(isAlive(far)).toBe(true)
  parent.kill('SIGKILL')
  await expect.poll(() => isAlive(far)).toBe(false)
})
