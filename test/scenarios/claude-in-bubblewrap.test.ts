/** Claude Code in bubblewrap, behind a server that keeps its own folders for itself. */
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { IsolatedAgent, sandboxOf } from '../support/isolated-agent.ts'
import { trafficUnderTest } from '../support/nodes-under-test.ts'

// A turn takes a second, more on a machine that has much else to do.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 60_000 })

const isHere = process.platform === 'linux' && trafficUnderTest() === null

describe.runIf(isHere)('Claude Code in bubblewrap', () => {
  let claude: IsolatedAgent

  beforeAll(async () => {
    claude = await IsolatedAgent.open('claude', () => sandboxOf('claude'))
  })
  afterAll(() => claude.close())

  it('keeps its context across turns and a restart, in the home of its session', async () => {
    expect(await claude.ask('one')).toBe('seen 1: one')
    expect(await claude.ask('two')).toBe('seen 2: two')
    await claude.restart()
    expect(await claude.ask('three')).toBe('seen 3: three')
    const names = readdirSync(join(claude.data, 'agents'), { recursive: true }) as string[]
    const transcripts = names.filter((name) => name.endsWith('.jsonl'))
    expect(transcripts).toEqual([
      expect.stringMatching(/^[0-9a-f]{32}\.home\/\.claude\/projects\//),
    ])
  })

  it('works with its shell in the folder of its session, and sees no other', async () => {
    const folder = await claude.ask('run pwd', 'other')
    expect(folder).toMatch(/\/agents\/[0-9a-f]{32}$/)
    const seen = await claude.ask(`run echo x > made; ls; ls ${claude.data} ${claude.data}/agents`)
    expect(existsSync(join(claude.data, 'holdfast.db'))).toBe(true)
    expect(seen).toMatch(/^made\n/)
    expect(seen).not.toContain('holdfast.db')
    expect(seen).not.toContain(folder.slice(-32))
  })
})
