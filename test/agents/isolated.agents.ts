/**
 * Real agents in a sandbox, Holdfast's and an operator's own, and as another user: they keep their
 * context in a home of their own, and their shells see nothing of the server or of other sessions.
 */
import { afterEach, describe, expect, it } from 'vitest'
import { asNobody, isRoot } from '../support/isolation.ts'
import { IsolatedAgent, sandboxOf } from '../support/isolated-agent.ts'
import { AGENTS } from '../support/real-agents.ts'
import { ROOT } from '../support/repository.ts'

/** What an operator may put in front: all is there to be read but what the server has. */
const wrapOf = (hidden: string) => ({
  ...asNobody,
  wrap: [
    ...['bwrap', '--unshare-pid', '--ro-bind', '/', '/', '--proc', '/proc', '--dev', '/dev'],
    // The agents are installed in this checkout, which may be in /tmp itself.
    ...['--tmpfs', '/tmp', '--ro-bind', ROOT, ROOT, '--tmpfs', hidden],
    ...['--bind', '{home}', '{home}', '--bind', '{cwd}', '{cwd}', '--'],
  ],
})

describe.each(AGENTS)('%s', (name) => {
  let agent: IsolatedAgent
  afterEach(() => agent.close())

  /** Three turns, the last after a restart, and commands that write and look around. */
  async function expectWork(isolation: (folder: string) => object): Promise<string> {
    agent = await IsolatedAgent.open(name, isolation)
    expect(await agent.ask('one')).toBe('seen 1: one')
    expect(await agent.ask('two')).toBe('seen 2: two')
    await agent.restart()
    expect(await agent.ask('three')).toBe('seen 3: three')
    expect(await agent.ask('run echo x > made; pwd; ls')).toMatch(/\/agents\/[0-9a-f]{32}\nmade\b/)
    const note = await agent.ask('run echo private > note; echo $PWD/note', 'other')
    const [path = ''] = /\S+\/agents\/[0-9a-f]{32}\/note/.exec(note) ?? []
    expect(path).not.toBe('')
    const files = [`${agent.data}/holdfast.db`, agent.tokens]
    for (const file of files) {
      const said = await agent.ask(`run cat ${file}`)
      expect(said).toMatch(/: (No such file|Permission denied)/)
      expect(said).not.toMatch(/SQLite|operator/)
    }
    return agent.ask(`run cat ${path}`)
  }

  const sandboxes = {
    bubblewrap: () => sandboxOf(name),
    "an operator's own sandbox": wrapOf,
  }
  it.each(Object.entries(sandboxes))('works in %s', async (_, isolation) => {
    const note = await expectWork(isolation)
    expect(note).toMatch(/: (No such file|Permission denied)/)
    expect(note).not.toContain('private')
  })

  // That protects the server's files, and not the sessions from each other.
  it.runIf(isRoot)('works as another user', async () => {
    expect(await expectWork(() => asNobody)).toContain('private')
  })
})
