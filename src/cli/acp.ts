/** `holdfast acp`: a session as an agent on stdio, for editors that start one. */
import { ROLES } from '../core/index.ts'
import { AcpShim } from './acp-shim.ts'
import { choice, defineCommand, text, toggle } from './command.ts'
import { note } from './output.ts'
import { Remote, REMOTE_FLAGS } from './remote.ts'

export const acp = defineCommand({
  name: 'acp',
  summary:
    'Speaks the Agent Client Protocol on stdin and stdout, for editors that start an agent. ' +
    'The editor keeps its place while the connection is lost or the server restarts.',
  flags: {
    key: text('KEY', 'the session that the editor opens; without it each new one is another'),
    agent: text('NAME', 'the agent of a new session; without it the default one of the server'),
    role: choice('ROLE', 'driver, or watcher: only looks on; else what the token allows', ROLES),
    replay: toggle('shows what was said before when a session that is there is opened by its key'),
    ...REMOTE_FLAGS,
  },
  async run({ key, agent, role, replay, ...remote }) {
    const { url: server, token } = new Remote(remote)
    const query = new URLSearchParams()
    for (const [name, value] of Object.entries({ key, agent, role })) {
      if (value !== null) query.set(name, value)
    }
    if (replay) query.set('replay', 'true')
    const url = `${server.replace(/^http/, 'ws')}/acp?${query.toString()}`
    const shim = new AcpShim({
      ...{ url, token, hasKey: key !== null, note },
      input: process.stdin,
      output: process.stdout,
    })
    return shim.run()
  },
})
