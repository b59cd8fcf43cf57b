import { homedir } from 'node:os'
import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { environmentAt, shownFolders, wrapperOf, type IsolationOptions } from './isolation.ts'

const HOME = '/data/agents/a.home'
const inBubblewrap: IsolationOptions = { isolation: 'bubblewrap', readOnly: ['/opt/agent'] }

describe('the environment of a child with its own home', () => {
  const own = join(homedir(), '.agent')

  it.each([
    ['in bubblewrap', inBubblewrap, 'AGENT_HOME', own, false],
    ['in bubblewrap', inBubblewrap, 'AGENT_CONFIG_DIR', '/srv/agent', false],
    ['in bubblewrap', inBubblewrap, 'AGENT_HOME', '/opt/agent/lib', true],
    ['in bubblewrap', inBubblewrap, 'AGENT_HOME', '/opt/agents', false],
    ['in bubblewrap', inBubblewrap, 'JAVA_HOME', '/usr/lib/jvm', true],
    ['in bubblewrap', inBubblewrap, 'AGENT_KEY', '/9j/4AAQ', true],
    ['in bubblewrap', inBubblewrap, 'PATH', '/srv/bin:/usr/bin', true],
    ['as another user', { runAs: { uid: 1 } }, 'AGENT_HOME', own, false],
    ['as another user', { runAs: { uid: 1 } }, 'AGENT_HOME', '/srv/agent', true],
    ['as another user', { runAs: { uid: 1 } }, 'XDG_CACHE_HOME', '/srv/cache', false],
    ['as another user', { runAs: { uid: 1 } }, 'TMPDIR', '/srv/tmp', false],
  ] as const)('%s: %o keeps %s=%s: %s', (_, options, name, value, isKept) => {
    const env = environmentAt(HOME, { HOME: homedir(), [name]: value }, options)
    expect(env).toEqual(isKept ? { HOME, [name]: value } : { HOME })
    const set = { [name]: value }
    expect(environmentAt(HOME, set, { ...options, env: set })).toEqual({ HOME, ...set })
  })
})

describe('in bubblewrap a child sees', () => {
  const before = process.env['NODE_EXTRA_CA_CERTS']
  afterEach(() => {
    if (before === undefined) delete process.env['NODE_EXTRA_CA_CERTS']
    else process.env['NODE_EXTRA_CA_CERTS'] = before
  })

  it("the server's further certificates", () => {
    process.env['NODE_EXTRA_CA_CERTS'] = '/srv/proxy.pem'
    expect(shownFolders(inBubblewrap)).toContain('/srv/proxy.pem')
    expect(wrapperOf(inBubblewrap).join(' ')).toContain(
      '--ro-bind-try /srv/proxy.pem /srv/proxy.pem',
    )
    process.env['NODE_EXTRA_CA_CERTS'] = 'relative.pem'
    expect(shownFolders(inBubblewrap)).not.toContain('relative.pem')
  })
})
