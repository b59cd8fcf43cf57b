/** What can be seen of the browsers themselves: over HTTP, in the metrics, and by people. */
import { afterAll, beforeAll, expect, it } from 'vitest'
import { serveCdp, type CdpServer } from '../support/cdp-server.ts'
import { CommandLine, killCommands } from '../support/command-line.ts'
import { RawCdp } from '../support/raw-cdp.ts'

let server: CdpServer
const clients: RawCdp[] = []

async function connect(name: string, query = ''): Promise<RawCdp> {
  const url = server.socketUrl.replace(/chromium$/, name)
  const client = await RawCdp.open(`${url}${query}`)
  clients.push(client)
  return client
}

async function browsers(): Promise<any[]> {
  const response = await fetch(`${server.server.url}/v1/browsers`)
  const answer = (await response.json()) as { node: null; browsers: any[] }
  expect(answer.node).toBeNull()
  return answer.browsers
}

async function sessionsTable(...flags: string[]): Promise<string> {
  const command = new CommandLine(['sessions', '--url', server.server.url, ...flags], {})
  expect(await command.exited, command.stderr).toBe(0)
  return command.stdout
}

beforeAll(async () => {
  const chromium = { program: 'chromium' }
  server = await serveCdp({ browsers: { chromium, solo: { ...chromium, own: true } } })
})
afterAll(async () => {
  killCommands()
  for (const client of clients) client.close()
  await server.close()
})

it('shows every browser that runs, whose it is, how it is and what it takes', async () => {
  expect(await browsers()).toEqual([])
  expect(await sessionsTable()).toBe('no sessions\n')
  const [first] = [await connect('chromium'), await connect('chromium', '?key=team')]
  await connect('chromium', '?key=team')
  await connect('solo', '?key=alone')
  await first.send('Target.createTarget', { url: 'about:blank' })
  const [shared, solo] = await browsers()
  expect(shared).toMatchObject({ name: 'chromium', session: null, key: null, health: 'good' })
  expect(shared).toMatchObject({ sessions: 2, clients: 3, pages: 3 })
  expect(solo).toMatchObject({ name: 'solo', key: 'cdp:solo:alone', sessions: 1, clients: 1 })
  for (const { pid, memoryBytes, startedAt } of [shared, solo]) {
    expect(() => process.kill(pid, 0)).not.toThrow()
    expect(memoryBytes).toBeGreaterThan(1e6)
    expect(Date.now() - startedAt).toBeLessThan(60_000)
  }
  const table = await sessionsTable('--state', 'open')
  expect(table).toMatch(/^\S+ +cdp:solo:alone +\S+ +open /m)
  expect(table).toMatch(/^BROWSER +FOR +PID +HEALTH +SESSIONS +CLIENTS +PAGES +MEMORY +STARTED$/m)
  expect(table).toMatch(
    new RegExp(`^chromium +shared +${shared.pid} +good +2 +3 +3 +\\d+ MB `, 'm'),
  )
  expect(table).toMatch(new RegExp(`^solo +cdp:solo:alone +${solo.pid} +good +1 +1 +1 `, 'm'))
  // For programs: one session a line, and nothing else.
  const lines = (await sessionsTable('--json')).trim().split('\n')
  expect(lines.map((line) => JSON.parse(line))).toHaveLength(3)
  expect(await sessionsTable('--key', 'cdp:solo:alone')).not.toContain('BROWSER')
})

it('counts browsers, sessions, clients, CDP sessions and pages for Prometheus', async () => {
  const [first] = clients
  await first?.send('Target.attachToBrowserTarget')
  const text = await (await fetch(`${server.server.url}/metrics`)).text()
  const value = (name: string): number =>
    Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1])
  expect(value('holdfast_browsers')).toBe(2)
  expect(value('holdfast_browser_sessions')).toBe(3)
  expect(value('holdfast_browser_clients')).toBe(4)
  expect(value('holdfast_cdp_sessions')).toBe(5)
  expect(value('holdfast_browser_pages')).toBe(4)
  expect(value('holdfast_cdp_commands_waiting')).toBe(0)
})
