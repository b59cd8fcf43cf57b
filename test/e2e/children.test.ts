/** Children of runners never outlive the process that started them, however that ends. */
import { spawn } from 'node:child_process'
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { killOrphans } from '../../src/platform/processes.ts'
import { GUARDED, guarded } from '../support/guarded.ts'
import { asNobody, isRoot, processesWith, sandboxed } from '../support/isolation.ts'
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
    env: childEnvironment({}), mark: markOf(process.argv[1], 'test') })
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

const folder = mkdtempSync(join(tmpdir(), 'holdfast-children-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** A child of a workplace that is deaf to signals, and its own child, which has left its group. */
const ISOLATED = `
  const { Workplace } = await import(${JSON.stringify(child.href)})
  const [options, deaf] = process.argv.slice(1)
  const workplace = new Workplace({ command: '/bin/sh', ...JSON.parse(options) })
  const child = workplace.start(['-c', deaf], await workplace.foldersOf('s'))
  child.stdout.once('data', (text) => console.log(String(text)))
  process.stdin.once('data', async () => {
    await child.stop(0)
    console.log('stopped')
  })
`

/**
 * Makes the first process of its namespace leave its process group, and empties the environment in
 * which that has its mark: both as a program may with processes of its own user (x64 only).
 */
const CAPTURE = `
  use strict;
  sub ptrace { syscall(101, $_[0], 1, 0, $_[1]) == 0 or die "ptrace $_[0]: $!" }
  sub stopped { syscall(61, 1, 0, 0x40000000, 0) == 1 or die "wait: $!" }
  ptrace(16, 0); stopped();
  my $regs = "\\0" x 216; ptrace(12, $regs);
  my @regs = unpack("q27", $regs);
  my @call = @regs; $call[10] = 112; $call[15] = -1; $call[16] -= 2;
  my $call = pack("q27", @call); ptrace(13, $call);
  ptrace(9, 0); stopped();
  my $after = "\\0" x 216; ptrace(12, $after);
  die "setsid" if (unpack("q27", $after))[10] < 0;
  ptrace(13, $regs); ptrace(17, 0);
  open(my $stat, "<", "/proc/1/stat"); my @fields = split(/ /, <$stat>);
  open(my $memory, "+<", "/proc/1/mem") or die "memory: $!";
  sysseek($memory, $fields[49], 0); syswrite($memory, "\\0" x ($fields[50] - $fields[49])) or die $!;
`

async function isolated(options: object, leave: string, output = '') {
  // By which the processes are found: their pids are others in their own namespace.
  const near = `600.${randomInt(1e9)}`
  const far = `600.${randomInt(1e9)}`
  const deaf = `trap '' TERM HUP INT; ${leave} sleep ${far} ${output} & echo up; sleep ${near}; sleep ${near}`
  const args = ['--input-type=module', '-e', ISOLATED, JSON.stringify(options), deaf]
  const parent = guarded(
    spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'], ...GUARDED }),
  )
  await once(parent.stdout, 'data')
  await expect.poll(() => processesWith(near).length).toBe(1)
  await expect.poll(() => processesWith(far).length).toBe(1)
  return {
    parent,
    near: () => processesWith(near),
    left: () => [...processesWith(near), ...processesWith(far)],
  }
}

/** Without Yama, or if that allows it, a process may trace others of its user. */
function mayTrace(): boolean {
  const yama = '/proc/sys/kernel/yama/ptrace_scope'
  return process.arch === 'x64' && (!existsSync(yama) || readFileSync(yama, 'utf8').trim() === '0')
}

const VARIANTS = [
  { what: 'another user', options: asNobody, leave: 'setsid', isThere: isRoot },
  // In the namespace not even a process without a mark remains.
  { what: 'bubblewrap', options: sandboxed(), leave: 'env -i setsid', isThere: true },
  {
    what: 'bubblewrap whose first process it has captured',
    options: sandboxed(),
    leave: `perl -e '${CAPTURE}' && env -i setsid`,
    isThere: mayTrace(),
  },
  {
    what: 'a wrapper',
    options: { wrap: ['/usr/bin/env', 'A={home}'] },
    leave: 'setsid',
    isThere: true,
  },
]

describe.each(VARIANTS)('of a child under $what', ({ options, leave, isThere }) => {
  const here = it.runIf(isThere && process.platform === 'linux')

  here('nothing is left after it was stopped', async () => {
    const { parent, left } = await isolated({ ...options, folder }, leave)
    parent.stdin.write('stop\n')
    await once(parent.stdout, 'data')
    await expect.poll(left).toEqual([])
    parent.kill('SIGKILL')
  })

  here('nothing is left after kill -9 of its parent', async () => {
    const { parent, left } = await isolated({ ...options, folder }, leave)
    parent.kill('SIGKILL')
    await expect.poll(left).toEqual([])
  })

  here('nothing is left after it has ended by itself', async () => {
    const { parent, near, left } = await isolated({ ...options, folder }, leave, '>&- 2>&-')
    const endNear = (): void => {
      for (const pid of near()) process.kill(pid, 'SIGKILL')
    }
    await expect.poll(() => (endNear(), left()), { timeout: 10_000 }).toEqual([])
    parent.kill('SIGKILL')
  })
})

onLinux('a child in bubblewrap has its time between SIGTERM and SIGKILL', async () => {
  const polite = `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.1; done`
  const script = ISOLATED.replace('child.stop(0)', 'child.stop()').replace('.once(', '.on(')
  const options = JSON.stringify({ ...sandboxed(), folder })
  const args = ['--input-type=module', '-e', script, options, polite]
  const parent = guarded(
    spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'], ...GUARDED }),
  )
  let said = ''
  parent.stdout.on('data', (text: Buffer) => (said += String(text)))
  await expect.poll(() => said).toContain('up')
  parent.stdin.write('stop\n')
  await expect.poll(() => said).toContain('stopped')
  expect(said).toContain('bye')
  parent.kill('SIGKILL')
})
