import { describe, expect, it } from 'vitest'
import { isAlive } from '../../test/support/processes.ts'
import { Child, childEnvironment, STDERR_CHARS_MAX } from './child.ts'

const env = childEnvironment({})

function node(script: string): Child {
  return new Child({ command: process.execPath, args: ['-e', script], env })
}

/** The first thing it says. */
async function firstWord(child: Child): Promise<string> {
  for await (const chunk of child.stdout) return String(chunk).trim()
  throw new Error(`it said nothing: ${child.stderr}`)
}

describe('the environment of a child', () => {
  const own = { PATH: '/bin', LC_ALL: 'C', API_KEY: 'secret', API_URL: 'http://a', GONE: undefined }

  it.each([
    [{}, { PATH: '/bin', LC_ALL: 'C' }],
    [{ envAllow: ['API_KEY'] }, { PATH: '/bin', LC_ALL: 'C', API_KEY: 'secret' }],
    [
      { envAllow: ['API_*', 'GONE'] },
      { PATH: '/bin', LC_ALL: 'C', API_KEY: 'secret', API_URL: 'http://a' },
    ],
    [{ env: { PATH: '/own', MORE: '1' } }, { PATH: '/own', LC_ALL: 'C', MORE: '1' }],
  ])('with %j is %j', (options, expected) => {
    expect(childEnvironment(options, own)).toEqual(expected)
  })
})

describe('a child', () => {
  it('tells how it ended, and the end of what it said on stderr', async () => {
    const child = node(`process.stderr.write('x'.repeat(99999) + 'the end'); process.exitCode = 3`)
    await child.ended
    expect(child.describeEnd()).toBe('exited with code 3')
    expect(child.stderr).toHaveLength(STDERR_CHARS_MAX)
    expect(child.stderr.endsWith('the end')).toBe(true)
  })

  it('that cannot be started has ended, and says why', async () => {
    const child = new Child({ command: '/no/such/program', env })
    await child.ended
    expect(child.describeEnd()).toMatch(/^could not be started: there is no such/)
    await child.stop()
  })

  it('that is deaf to SIGTERM is killed after the grace time, with what it started', async () => {
    const grandchild = `process.on('SIGTERM', () => {}); setInterval(() => {}, 1000)`
    const child = node(`
      process.on('SIGTERM', () => {})
      const { pid } = require('child_process')
        .spawn(process.execPath, ['-e', ${JSON.stringify(grandchild)}], { stdio: 'inherit' })
      console.log(pid)
      setInterval(() => {}, 1000)`)
    const pid = Number(await firstWord(child))
    expect(isAlive(pid)).toBe(true)
    await child.stop(50)
    expect(child.describeEnd()).toBe('was killed by SIGKILL')
    await expect.poll(() => isAlive(pid)).toBe(false)
  })

  it('that listens to SIGTERM ends in its own way', async () => {
    const child = node(`process.on('SIGTERM', () => process.exit(7)); console.log('up')
      setInterval(() => {}, 1000)`)
    await firstWord(child)
    await child.stop()
    expect(child.end).toMatchObject({ code: 7, signal: null })
  })

  it('takes with it what it left behind in its group', async () => {
    const child = node(`
      const { pid } = require('child_process')
        .spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], { stdio: 'ignore' })
      console.log(pid); process.exit()`)
    const pid = Number(await firstWord(child))
    await child.ended
    await expect.poll(() => isAlive(pid)).toBe(false)
  })
})
