/** Sessions in a Vitest made of its shape alone: policies, claimants, calls that lose a page. */
import { EventEmitter, once } from 'node:events'
import { Duplex } from 'node:stream'
import { afterEach, describe, expect, it } from 'vitest'
import { checkVersion, type Orchestrator, type Project, type Vitest } from './internals.ts'
import { holdfast, type HoldfastVitestOptions } from './index.ts'

const SESSION = '5f0c'
const worlds: World[] = []

afterEach(async () => {
  await Promise.all(worlds.splice(0).map((world) => world.close()))
})

describe('a page that comes back', () => {
  it('finds its session, and the call that lost it is made again', async () => {
    const world = await opened({ reconnect: 'resume' })
    const first = await world.connect()
    const result = world.run()
    await first.called
    first.lose()
    const second = await world.connect()
    second.finish('passed')
    expect(await result).toBe('passed')
    expect(world.isListed).toBe(true)
  })

  it('is told at once that it is over under none', async () => {
    const world = await opened({ reconnect: 'none' })
    const first = await world.connect()
    const result = world.run()
    await first.called
    first.lose()
    await expect(result).rejects.toThrow('the connection was closed')
    expect(await world.connectRefused()).toContain('410')
    expect(world.isListed).toBe(false)
  })

  it('may come back under early until the first call, and not after it', async () => {
    const world = await opened({ reconnect: 'early' })
    const first = await world.connect()
    first.lose()
    const second = await world.connect()
    second.finish('passed')
    expect(await world.run()).toBe('passed')
    second.lose()
    expect(await world.connectRefused()).toContain('410')
  })

  it('is too late after the grace time, and what waited for it fails', async () => {
    const world = await opened({ reconnect: 'resume', graceMs: 20 })
    const first = await world.connect()
    const result = world.run()
    await first.called
    first.lose()
    await expect(result).rejects.toThrow('the connection was closed')
    expect(await world.connectRefused()).toContain('410')
    expect(world.warnings.join()).toContain('did not come back in time')
  })

  it('is welcome under reopen after the grace time too', async () => {
    const world = await opened({ reconnect: 'reopen', graceMs: 20 })
    const first = await world.connect()
    const result = world.run()
    await first.called
    first.lose()
    await expect(result).rejects.toThrow('the connection was closed')
    expect(world.isListed).toBe(false)
    const second = await world.connect()
    second.finish('passed')
    expect(await world.run()).toBe('passed')
  })
})

describe('a second page', () => {
  it('is refused while the first one answers', async () => {
    const world = await opened({})
    const first = await world.connect()
    first.answerPings()
    expect(await world.connectRefused()).toMatch(/409.*open in another tab/s)
    first.finish('passed')
    expect(await world.run()).toBe('passed')
  })

  it('takes the place of a first one that is silent', async () => {
    const world = await opened({})
    await world.connect()
    const second = await world.connect()
    second.finish('passed')
    expect(await world.run()).toBe('passed')
  })
})

describe('a call', () => {
  it('fails as the page says', async () => {
    const world = await opened({})
    const page = await world.connect()
    page.fail(new Error('no such iframe'))
    await expect(world.run()).rejects.toThrow('no such iframe')
  })

  it('that takes its page down every time is not made for ever', async () => {
    const world = await opened({})
    let page = await world.connect()
    const result = world.run()
    for (let attempt = 1; attempt < 3; attempt += 1) {
      await page.called
      page.lose()
      page = await world.connect()
    }
    await page.called
    page.lose()
    await expect(result).rejects.toThrow('the connection was closed')
  })

  it('that waits for a page settles when Vitest closes the session', async () => {
    const world = await opened({})
    const page = await world.connect()
    const result = world.run()
    await page.called
    page.lose()
    world.vitest._browserSessions.close(SESSION)
    await expect(result).rejects.toThrow('the connection was closed')
  })

  it('that waits for a page settles when the page has crashed', async () => {
    const world = await opened({})
    const page = await world.connect()
    const result = world.run()
    await page.called
    world.vitest._browserSessions.getSession(SESSION)?.fail(new Error('crashed'))
    page.lose()
    await expect(result).rejects.toThrow('the connection was closed')
  })
})

describe('the version', () => {
  it.each(['5.0.5', '5.1.0'])('may be %s', (version) => {
    expect(() => checkVersion({ version }, false)).not.toThrow()
  })

  it.each(['4.1.12', '5.2.0', '5.10.0', '6.0.0'])('may not be %s unless forced', (version) => {
    expect(() => checkVersion({ version }, false)).toThrow(`this is ${version}`)
    expect(() => checkVersion({ version }, true)).not.toThrow()
  })
})

async function opened(options: HoldfastVitestOptions): Promise<World> {
  const world = new World(options)
  worlds.push(world)
  return world
}

/** As much of Vitest as the plugin touches, with what it does when a socket opens and closes. */
class World {
  readonly warnings: string[] = []
  readonly #server = new EventEmitter()
  readonly #sessions = new Map([[SESSION, { fail: () => {} }]])
  readonly #closing: (() => Promise<void>)[] = []
  readonly #pages: Page[] = []
  readonly #project: Project & { browser: { state: { orchestrators: Map<string, Orchestrator> } } }
  readonly vitest: Vitest

  constructor(options: HoldfastVitestOptions) {
    this.vitest = {
      version: '5.1.0',
      config: { api: { token: 'secret' } },
      logger: { warn: (message) => void this.warnings.push(message) },
      onClose: (run) => void this.#closing.push(run),
      _browserSessions: {
        getSession: (id) => this.#sessions.get(id),
        createSession: async () => {},
        destroySession: (id) => void this.#sessions.delete(id),
        close: (id) => void this.#sessions.delete(id),
      },
    }
    this.#project = {
      name: 'chromium',
      browser: { state: { orchestrators: new Map() } },
      vite: { httpServer: this.#server },
    }
    this.#server.on('upgrade', (_, socket: FakeSocket) => this.#upgrade(socket))
    holdfast(options).configureVitest({ vitest: this.vitest, project: this.#project })
    void this.vitest._browserSessions.createSession(SESSION, this.#project, {})
  }

  get #orchestrators(): Map<string, Orchestrator> {
    return this.#project.browser.state.orchestrators
  }

  get isListed(): boolean {
    return this.#orchestrators.has(SESSION)
  }

  #upgrade(socket: FakeSocket): void {
    const page = new Page(socket)
    this.#orchestrators.set(SESSION, page)
    this.#pages.push(page)
    this.#server.emit('connected', page)
    socket.once('close', () => {
      this.#orchestrators.delete(SESSION)
      this.vitest._browserSessions.destroySession(SESSION)
      page.$close(new Error('the connection was closed'))
    })
  }

  #dial(): FakeSocket {
    const url = `/__vitest_browser_api__?type=orchestrator&sessionId=${SESSION}&token=secret`
    const socket = new FakeSocket()
    this.#server.emit('upgrade', { url }, socket)
    return socket
  }

  /** A page's socket, as far as Vitest. */
  async connect(): Promise<Page> {
    const connected = once(this.#server, 'connected')
    this.#dial()
    const [page] = (await connected) as [Page]
    return page
  }

  /** What a socket that is refused is answered. */
  async connectRefused(): Promise<string> {
    const socket = this.#dial()
    await once(socket, 'finish')
    return socket.written
  }

  /** What the pool does to run a file. */
  async run(): Promise<unknown> {
    const page = this.#orchestrators.get(SESSION)
    if (page === undefined) throw new Error('there is no page')
    return page.createTesters({ files: [{ filepath: 'a.test.js' }] })
  }

  async close(): Promise<void> {
    await Promise.all(this.#closing.map((run) => run()))
    for (const page of this.#pages) page.lose()
  }
}

/** A runner page: it answers one call, when it is told how. */
class Page implements Orchestrator {
  $closed = false
  finish: (result: unknown) => void = () => {}
  fail: (error: Error) => void = () => {}
  readonly called: Promise<void>
  readonly #socket: FakeSocket
  readonly #result = new Promise<unknown>((resolve, reject) => {
    this.finish = resolve
    this.fail = reject
  })
  #call: () => void = () => {}

  constructor(socket: FakeSocket) {
    this.#socket = socket
    this.#result.catch(() => {})
    this.called = new Promise((resolve) => {
      this.#call = resolve
    })
  }

  createTesters(): Promise<unknown> {
    this.#call()
    return this.#result
  }

  async cleanupTesters(): Promise<void> {}

  $close(error: Error): void {
    this.$closed = true
    this.fail(error)
  }

  lose(): void {
    this.#socket.destroy()
  }

  answerPings(): void {
    this.#socket.isAlive = true
  }
}

/** The server's end of a socket: the other end is silent, or answers whatever it gets. */
class FakeSocket extends Duplex {
  isAlive = false
  written = ''

  override _read(): void {}

  override _write(chunk: Buffer, _: string, done: () => void): void {
    this.written += chunk.toString()
    if (this.isAlive) this.push('pong')
    done()
  }
}
