/** Real agents in a sandbox and as another user: they keep their context in a home of their own. */
import { afterEach, describe, expect, it } from 'vitest'
import { asNobody, isRoot } from '../support/isolation.ts'
import { IsolatedAgent, sandboxOf } from '../support/isolated-agent.ts'

describe.each(['claude', 'codex'] as const)('%s', (name) => {
  let agent: IsolatedAgent
  afterEach(() => agent.close())

  /** Three turns, the last after a restart, and a command that writes to the session's folder. */
  async function expectWork(isolation: object): Promise<void> {
    agent = await IsolatedAgent.open(name, isolation)
    expect(await agent.ask('one')).toBe('seen 1: one')
    expect(await agent.ask('two')).toBe('seen 2: two')
    await agent.restart()
    expect(await agent.ask('three')).toBe('seen 3: three')
    const said = await agent.ask(`run echo x > made; pwd; ls; cat ${agent.data}/holdfast.db`)
    expect(said).toMatch(/\/agents\/[0-9a-f]{32}\nmade\n/)
    expect(said).toMatch(/holdfast\.db: (No such file|Permission denied)/)
  }

  it('works in bubblewrap', () => expectWork(sandboxOf(name)))

  it.runIf(isRoot)('works as another user', () => expectWork(asNobody))
})
