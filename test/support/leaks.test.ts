/** The check at the end of every test file finds what is left behind. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync, writeFileSync } from 'node:fs'
import { connect, createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { LeakCheck } from './leaks.ts'
import { serve } from './server.ts'

describe('a test that leaves nothing behind', () => {
  it('passes, also with a server that it has closed', async () => {
    const check = new LeakCheck()
    const server = await serve()
    await server.post('/v1/keys/k/turns', { input: 'hello' })
    await server.close()
    expect(await check.end(5_000)).toEqual([])
  })

  it('may leave what goes away by itself', async () => {
    const check = new LeakCheck()
    setTimeout(() => undefined, 50)
    expect(await check.end(5_000)).toEqual([])
  })
})

describe('a test is caught that leaves', () => {
  it('a server and a socket', async () => {
    const check = new LeakCheck()
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1')
    const [other] = await once(server, 'connection')
    expect(await check.end(0)).toEqual(['1 × TCPServerWrap', '2 × TCPSocketWrap'])
    socket.destroy()
    other.destroy()
    server.close()
  })

  it('a timer', async () => {
    const check = new LeakCheck()
    const timer = setInterval(() => undefined, 1_000)
    expect(await check.end(0)).toEqual(['1 × Timeout'])
    clearInterval(timer)
  })

  it('a process that the test does not wait for', async () => {
    const check = new LeakCheck()
    const child = spawn('sleep', ['60'], { stdio: 'ignore', detached: true })
    child.unref()
    expect(await check.end(0)).toEqual(['process: sleep 60'])
    child.kill('SIGKILL')
  })

  it('a temporary file', async () => {
    const check = new LeakCheck()
    const file = join(tmpdir(), 'forgotten')
    writeFileSync(file, '')
    expect(await check.end(0)).toEqual(['temporary file: forgotten'])
    rmSync(file, { force: true })
  })
})
