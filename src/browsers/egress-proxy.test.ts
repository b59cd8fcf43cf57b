import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { DnsServer } from '../../test/support/dns-server.ts'
import type { ResolveHost } from '../platform/resolver.ts'
import { EgressProxy } from './egress-proxy.ts'
import { EgressRule } from '../platform/egress.ts'
import { BROWSER_LIMITS, type BrowserLimits } from './limits.ts'

let echo: Server
let port: number
let proxy: EgressProxy | null = null
let refused: string[] = []
let resolved: string[] = []

beforeEach(async () => {
  refused = []
  resolved = []
  echo = createServer((socket) => socket.pipe(socket))
  await once(echo.listen(0, '127.0.0.1'), 'listening')
  port = (echo.address() as AddressInfo).port
})
afterEach(async () => {
  await proxy?.close()
  await new Promise((done) => echo.close(done))
})

async function open(
  allowed: readonly string[],
  limits: Partial<BrowserLimits> = {},
): Promise<void> {
  const resolve: ResolveHost = async (name) => {
    resolved.push(name)
    return name === 'nowhere.test' ? [] : ['127.0.0.1']
  }
  const onRefused = (host: string): void => void refused.push(host)
  const options = { guard: { rule: EgressRule.read(allowed) }, resolve, onRefused }
  proxy = await EgressProxy.open(options, { ...BROWSER_LIMITS, ...limits })
}

function dial(): Socket {
  const socket = connect({ port: proxy?.port ?? 0, host: '127.0.0.1' })
  return socket.on('error', () => undefined)
}

async function received(socket: Socket, bytes: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  const length = (): number => Buffer.concat(chunks).length
  socket.on('data', (chunk: Buffer) => chunks.push(chunk))
  const closed = once(socket, 'close')
  while (length() < bytes && !socket.destroyed) await Promise.race([once(socket, 'data'), closed])
  return Buffer.concat(chunks)
}

const GREETING = [5, 1, 0]

function request(host: string, command = 1): Buffer {
  const head = Buffer.from([...GREETING, 5, command, 0, 3, host.length])
  const tail = Buffer.alloc(2)
  tail.writeUInt16BE(port)
  return Buffer.concat([head, Buffer.from(host), tail])
}

/** The code of the reply: 0 is success. */
async function reply(...sent: readonly Buffer[]): Promise<number | undefined> {
  const socket = dial()
  for (const part of sent) socket.write(part)
  const answer = await received(socket, 12)
  socket.destroy()
  return answer[3]
}

describe('the egress proxy', () => {
  it('connects to what is allowed, resolves its name once, passes bytes both ways', async () => {
    await open(['127.0.0.1'])
    const socket = dial()
    // All at once, and the first bytes for the other end with it.
    socket.write(Buffer.concat([request('a.test'), Buffer.from('hello')]))
    const answer = await received(socket, 17)
    expect([answer[3], answer.subarray(12).toString()]).toEqual([0, 'hello'])
    expect(resolved).toEqual(['a.test'])
    socket.destroy()
  })

  it('resolves names of this machine as the system does', async () => {
    const rule = EgressRule.read(['127.0.0.1', '::1'])
    proxy = await EgressProxy.open({ guard: { rule }, onRefused: () => undefined }, BROWSER_LIMITS)
    expect(await reply(request('localhost'))).toBe(0)
  })

  it('takes addresses as numbers too, and a request byte by byte', async () => {
    await open(['127.0.0.1'])
    const tail = request('x').subarray(-2)
    const four = Buffer.from([...GREETING, 5, 1, 0, 1, 127, 0, 0, 1])
    expect(await reply(four, tail)).toBe(0)
    const mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1]
    expect(await reply(Buffer.from([...GREETING, 5, 1, 0, 4, ...mapped]), tail)).toBe(0)
    expect(await reply(...[...request('127.0.0.1')].map((byte) => Buffer.from([byte])))).toBe(0)
    expect(resolved).toEqual([])
  })

  it('refuses the rest, and reports it', async () => {
    await open([])
    for (const host of ['127.0.0.1', '[::1]', 'a.test', '::ffff:7f00:1']) {
      expect(await reply(request(host))).toBe(2)
    }
    expect(await reply(request('fe80::1%lo'))).toBe(2)
    expect(refused).toEqual(['127.0.0.1', '::1', 'a.test', '::ffff:7f00:1'])
  })

  it('tells what it cannot do, and goes on', async () => {
    await open(['127.0.0.1'])
    expect(await reply(request('nowhere.test'))).toBe(4)
    expect(await reply(request('a.test', 2))).toBe(7)
    expect(await reply(Buffer.from([...GREETING, 5, 1, 0, 9]))).toBe(8)
    expect((await received(dial().end('GET / HTTP/1.1\r\n\r\n'), 100)).length).toBeLessThan(12)
    expect(await reply(request('a.test'))).toBe(0)
  })

  it('ends clients that do not ask in time, and those beyond its bound', async () => {
    await open(['127.0.0.1'], { egressConnectMs: 50, egressConnectionsMax: 1 })
    const [silent, other] = [dial(), dial()]
    await Promise.all([received(silent, 1), received(other, 1)])
    expect([silent.destroyed, other.destroyed]).toEqual([true, true])
  })

  it('ends both ends with one, and all when it is closed', async () => {
    await open(['127.0.0.1'])
    const socket = dial()
    socket.write(request('a.test'))
    await received(socket, 12)
    const [accepted] = (await new Promise<number[]>((done) => {
      echo.getConnections((_, count) => done([count]))
    })) as [number]
    expect(accepted).toBe(1)
    const closed = once(socket, 'close')
    await proxy?.close()
    await closed
    proxy = null
  })

  describe('with a name server', () => {
    const PUBLIC = '127.0.0.2'
    let dns: DnsServer
    let site: Server
    let answers: string[][] = []

    beforeEach(async () => {
      dns = await DnsServer.start(() => (answers.length > 2 ? answers.shift() : answers[0]) ?? [])
      site = createServer((socket) => socket.end('public'))
      await once(site.listen(port, PUBLIC), 'listening')
      const rule = EgressRule.read([PUBLIC])
      const onRefused = (host: string): void => void refused.push(host)
      const options = { guard: { rule }, onRefused, nameServers: [dns.address] }
      proxy = await EgressProxy.open(options, BROWSER_LIMITS)
    })
    afterEach(async () => {
      await dns.close()
      await new Promise((done) => site.close(done))
    })

    it('connects to the address that it has checked, whatever the name leads to next', async () => {
      // One answer for each family, then the other address.
      answers = [[PUBLIC], [PUBLIC], ['127.0.0.1'], ['127.0.0.1']]
      const socket = dial()
      socket.write(request('rebind.test'))
      expect((await received(socket, 18)).subarray(12).toString()).toBe('public')
      expect(dns.asked.toSorted()).toEqual(['rebind.test 4', 'rebind.test 6'])
      expect(await reply(request('rebind.test'))).toBe(2)
      expect(refused).toEqual(['rebind.test'])
    })

    it.each([
      ...['127.0.0.1', '169.254.169.254', '0.0.0.0', '10.0.0.1', '::1', '::', 'fd00:ec2::254'],
      ...['::ffff:127.0.0.1', '64:ff9b::7f00:1', '64:ff9b::a9fe:a9fe', '2002:7f00:1::'],
    ])('refuses a name that leads to %s', async (address) => {
      answers = [[address]]
      expect(await reply(request('inside.test'))).toBe(2)
      expect(dns.asked).toHaveLength(2)
      expect(refused).toEqual(['inside.test'])
    })

    it('asks it for no name of this machine', async () => {
      answers = [[PUBLIC]]
      for (const name of ['localhost', 'LOCALHOST']) expect(await reply(request(name))).toBe(2)
      expect(dns.asked).toEqual([])
    })
  })

  const isRoot = process.platform === 'linux' && process.getuid?.() === 0
  it.skipIf(!isRoot)('is closed to programs of other users', async () => {
    await open(['127.0.0.1'])
    const script = `
      const socket = require('net').connect(${proxy?.port}, '127.0.0.1')
      socket.on('error', () => undefined).on('data', () => console.log('answered'))
      socket.on('close', () => console.log('closed')).write(Buffer.from([5, 1, 0]))
      socket.once('data', () => socket.destroy())`
    for (const [uid, told] of [
      [65_534, 'closed'],
      [0, 'answered'],
    ] as const) {
      const child = spawn(process.execPath, ['-e', script], { uid, cwd: '/' })
      const [said] = (await once(child.stdout, 'data')) as [Buffer]
      await once(child, 'close')
      expect(said.toString().split('\n')[0]).toBe(told)
    }
  })
})
