import { describe, expect, it } from 'vitest'
import { mayFork } from './agent-settings.ts'

describe('an agent can be forked', () => {
  const command = 'agent'
  it.each([
    ['with the home of the server', {}, true],
    ['that works in one folder', { cwd: '/work' }, true],
    ['as another user, with a home for each session', { runAs: { uid: 65_534 } }, false],
    ['in a sandbox', { isolation: 'bubblewrap' } as const, false],
    ['behind a wrapper, which may do anything', { wrap: ['sandbox', '--'] }, false],
  ])('%s: only if the fork finds the conversation of its source', (_, options, isPossible) => {
    expect(mayFork({ command, ...options })).toBe(isPossible)
  })
})
