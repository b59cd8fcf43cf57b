import { describe, expect, it } from 'vitest'
import { checkRules, Rules, traceRules, type Rule, type RuleRequest } from './rules.ts'
import type { Ask, AskDetail, AskOption, Grant } from './state.ts'

const ASK: Omit<Ask, 'id'> = {
  turn: 't2',
  kind: 'permission',
  question: 'May I?',
  options: [
    { id: 'allow', label: 'Allow' },
    { id: 'allow_always', label: 'Always', grants: [{ label: 'x', data: 1 }] },
    { id: 'deny', label: 'Deny' },
  ],
  deadline: 9,
  onNobody: 'wait',
}

function apply(rules: readonly Rule[], detail: AskDetail, grants: readonly Grant[] = []) {
  const principal = { kind: 'token', issuer: 'holdfast', id: 'alice' } as const
  return new Rules(rules, String).apply({ ...ASK, detail }, { agent: 'claude', principal, grants })
}

const matches = (rule: object, detail: AskDetail, more: Partial<RuleRequest> = {}): boolean => {
  const whole = { name: 'r', decision: 'allow', ...rule } as Rule
  const request = { agent: 'claude', principal: 'alice', detail, ...more }
  return traceRules(checkRules([whole]), request)[0]?.fails === null
}

describe('a rule that allows', () => {
  it.each<[string, object, AskDetail, boolean]>([
    ['a command', { commands: ['npm test'] }, { command: 'npm test' }, true],
    ['no other words', { commands: ['npm test'] }, { command: 'npm test --watch' }, false],
    ['further words', { commands: ['npm test *'] }, { command: 'npm test --watch a' }, true],
    ['no further word is needed', { commands: ['npm test *'] }, { command: 'npm test' }, true],
    ['a part of a word', { commands: ['npm run build:*'] }, { command: 'npm run build:css' }, true],
    ['one word alone', { commands: ['*'] }, { command: 'rm x' }, false],
    ['a quoted word', { commands: ['git commit -m *'] }, { command: "git commit -m 'a; b'" }, true],
    ['nothing compound', { commands: ['npm *'] }, { command: 'npm test; rm x' }, false],
    [
      'nothing compound, whatever it says',
      { tools: ['Bash'] },
      { tool: 'Bash', command: 'a | b' },
      false,
    ],
    ['a simple command by its tool', { tools: ['Ba*'] }, { tool: 'Bash', command: 'a b' }, true],
    ['no tool that is not known', { tools: ['*'] }, { command: 'a' }, false],
    ['no command of another name', { commands: ['rm *'] }, { command: '/bin/rm x' }, false],
    ['nothing that is cut', { tools: ['Write'] }, { tool: 'Write', truncated: true }, false],
    ['nothing without a sandbox', { commands: ['a'] }, { command: 'a', unsandboxed: true }, false],
    ['every path', { paths: ['/w/**'] }, { paths: ['/w/a', '/w/b/c'] }, true],
    ['not some paths', { paths: ['/w/**'] }, { paths: ['/w/a', '/etc/passwd'] }, false],
    ['not by the way', { paths: ['/w/**'] }, { paths: ['/w/../etc/passwd'] }, false],
    [
      'the paths of the diff too',
      { paths: ['/w/*'] },
      { paths: ['/w/a'], diff: [{ path: '/x', before: null, after: '' }] },
      false,
    ],
    ['relative to the folder', { paths: ['/w/**'] }, { paths: ['a/./b'], cwd: '/w' }, true],
    ['not of an unknown folder', { paths: ['**'] }, { paths: ['a'] }, false],
    ['no path at all', { paths: ['**'] }, {}, false],
    ['names in one folder', { paths: ['/w/*.ts'] }, { paths: ['/w/a/b.ts'] }, false],
    ['folders in between', { paths: ['/w/**/b.ts'] }, { paths: ['/w/b.ts'] }, true],
    ['a dot is a dot', { paths: ['/w/a.ts'] }, { paths: ['/w/axts'] }, false],
    ['a host', { hosts: ['example.com'] }, { url: 'https://EXAMPLE.com:8443/x?y' }, true],
    ['a host below', { hosts: ['*.example.com'] }, { url: 'https://a.example.com' }, true],
    [
      'not a host that ends so',
      { hosts: ['*.example.com'] },
      { url: 'https://aexample.com' },
      false,
    ],
    ['not by a user', { hosts: ['example.com'] }, { url: 'https://example.com@evil.org/' }, false],
    [
      'not by a backslash',
      { hosts: ['example.com'] },
      { url: 'https://example.com\\@evil.org' },
      false,
    ],
    ['a kind', { kinds: ['read'] }, { kind: 'read' }, true],
    [
      'all of its conditions',
      { kinds: ['read'], tools: ['Read'] },
      { kind: 'read', tool: 'Grep' },
      false,
    ],
    ['everything', {}, { tool: 'x' }, true],
  ])('matches %s', (_, rule, detail, expected) => {
    expect(matches(rule, detail)).toBe(expected)
  })

  it('matches agents and principals by name', () => {
    expect(matches({ agents: ['cl*'] }, {})).toBe(true)
    expect(matches({ agents: ['codex'] }, {})).toBe(false)
    expect(matches({ principals: ['alice'] }, {})).toBe(true)
    expect(matches({ principals: ['*'] }, {}, { principal: null })).toBe(false)
  })
})

describe('a rule that denies', () => {
  const denies = (rule: object, detail: AskDetail) => matches({ decision: 'deny', ...rule }, detail)

  it.each([
    ...['rm -rf x', 'sudo rm x', '/bin/rm x', 'a; rm x', 'a && rm x', 'a $(rm x)', 'a `rm x`'],
    ...[
      `sh -c 'rm x'`,
      `bash -lc "cd /; rm x"`,
      'env A=1 rm x',
      'xargs rm',
      'r\\m x',
      `r''m x`,
      '(rm x)',
    ],
    ...[
      'find . -exec rm {} +',
      'if a; then rm x; fi',
      'A=b rm x',
      'a | xargs -0 rm -f',
      'rm\tx',
      'a\nrm x',
    ],
  ])('finds a command wherever it is: %j', (command) => {
    expect(denies({ commands: ['rm *'] }, { command })).toBe(true)
  })

  it.each(['ls', 'npm run rmx', `git commit -m "rmx"`])('leaves other commands: %s', (command) => {
    expect(denies({ commands: ['rm *'] }, { command })).toBe(false)
  })

  it('matches any path and any part of an odd address', () => {
    expect(denies({ paths: ['/etc/**'] }, { paths: ['/w/a', '/w/../etc/x'] })).toBe(true)
    expect(denies({ paths: ['/etc/**'] }, { paths: ['etc/x'] })).toBe(true)
    expect(denies({ paths: ['/etc/**'] }, { paths: ['/w/a'] })).toBe(false)
    for (const url of [
      'http://a@evil.org',
      'http:\\\\evil.org',
      'http://evil.org.',
      '//evil.org/x',
    ]) {
      expect(denies({ hosts: ['evil.org'] }, { url })).toBe(true)
    }
  })
})

describe('what is decided', () => {
  const allow: Rule = { name: 'tests', decision: 'allow', commands: ['npm *'] }
  const deny: Rule = {
    name: 'no publishing',
    decision: 'deny',
    commands: ['npm publish *'],
    message: 'Ask Bob.',
  }
  const ask: Rule = { name: 'installs', decision: 'ask', commands: ['npm install *'] }

  it('is nothing without a rule that matches', () => {
    expect(apply([], { command: 'npm test' }).ruling).toBeNull()
    expect(apply([allow], { command: 'ls' }).ruling).toBeNull()
  })

  it('is the first rule that matches, but a denial wins', () => {
    const all = [allow, ask, deny]
    expect(apply(all, { command: 'npm test' }).ruling).toEqual({
      decision: 'allow',
      message: null,
      rule: 'tests',
    })
    expect(apply(all, { command: 'npm publish' }).ruling).toEqual({
      decision: 'deny',
      message: 'Ask Bob.',
      rule: 'no publishing',
    })
    expect(apply(all, { command: 'npm install x' }).ruling).toMatchObject({ decision: 'allow' })
    expect(apply([ask, allow], { command: 'npm install x' }).ruling).toBeNull()
  })

  it('leaves options alone where no rule can overrule them', () => {
    expect(apply([allow], { command: 'ls' }).ask.options).toEqual(ASK.options)
    const other: Rule = { ...deny, agents: ['codex'] }
    expect(apply([other], { command: 'ls' }).ask.options).toEqual(ASK.options)
  })

  it('offers the same request instead of what would keep the agent from asking', () => {
    const { options } = apply([deny], { command: 'ls' }).ask
    expect(options?.map(({ id }) => id)).toEqual(['allow', 'deny', 'holdfast:allow_same'])
    const grants = (options as readonly AskOption[])[2]?.grants ?? []
    expect(grants).toMatchObject([{ label: 'ls' }])
    expect(apply([deny, ask], { command: 'ls' }, grants).ruling).toEqual({
      decision: 'allow',
      message: null,
      grant: 'ls',
    })
    expect(apply([deny, ask], { command: 'ls -l' }, grants).ruling).toBeNull()
    const none: Rule = { name: 'none', decision: 'deny' }
    expect(apply([none], { command: 'ls' }, grants).ruling).toMatchObject({ decision: 'deny' })
  })

  it('is nothing for what is not a permission', () => {
    const rules = new Rules([{ name: 'all', decision: 'deny' }], String)
    const by = { agent: 'a', principal: null, grants: [] }
    for (const asked of [
      { ...ASK, kind: 'question' },
      { ...ASK, options: null },
    ]) {
      expect(rules.apply(asked, by)).toEqual({ ask: asked, ruling: null })
    }
  })
})

it.each<[object, string]>([
  [{ decision: 'allow' }, 'rules.0.name'],
  [{ name: 'a\nb', decision: 'allow' }, 'rules.0.name'],
  [{ name: 'a', decision: 'maybe' }, 'rules.0.decision'],
  [{ name: 'a', decision: 'allow', message: 'x' }, 'rules.0.message'],
  [{ name: 'a', decision: 'allow', command: ['x'] }, 'rules.0.command'],
  [{ name: 'a', decision: 'allow', commands: [] }, 'rules.0.commands'],
  [{ name: 'a', decision: 'allow', commands: ['a; b'] }, 'rules.0.commands'],
  [{ name: 'a', decision: 'allow', paths: ['src/*'] }, 'rules.0.paths'],
  [{ name: 'a', decision: 'allow', hosts: ['https://x'] }, 'rules.0.hosts'],
  [{ name: 'a', decision: 'allow', kinds: ['reads'] }, 'rules.0.kinds'],
])('refuses what is no rule: %j', (rule, field) => {
  expect(() => checkRules([rule as Rule])).toThrow(field)
})

it('refuses two rules of one name', () => {
  const rule: Rule = { name: 'a', decision: 'ask' }
  expect(() => checkRules([rule, rule])).toThrow('rules.1.name')
})

describe('tricks', () => {
  const decision = (rule: Partial<Rule>, detail: AskDetail): string =>
    new Rules([{ name: 'one', decision: 'deny', ...rule }], String).decide({
      ...{ agent: 'claude', principal: null, detail },
    }).decision

  it.each([
    ...['RM -rf x', 'rm$IFS-rf$IFS/', 'rm${IFS}x', "$'\\x72m' x", "$'\\162m' x", 'r\\m x'],
    ...['env A=1 rm x', 'ls | xargs rm', "sh -c 'rm x'", 'cat <<E | sh\nrm x\nE', '/bin/rm x'],
  ])('do not get a command past a rule that denies it: %j', (command) => {
    expect(decision({ commands: ['rm *'] }, { command })).toBe('deny')
  })

  it.each([
    ...['~/.ssh/id', 'file:///etc/passwd', '/ETC/passwd', '/etc', '/w/../etc/x', '/etc\\x'],
    ...['//etc//passwd', '../etc/passwd', '/etc/./passwd'],
  ])('do not get a path past a rule that denies it: %j', (path) => {
    expect(decision({ paths: ['/etc/**'] }, { paths: [path], cwd: '/w' })).toBe('deny')
  })

  it.each([
    ...['https://EVIL.example.', 'https://ok.example@evil.example/', 'https://ev\til.example'],
    ...[
      'https://evil%2eexample',
      'https://ｅｖｉｌ.example',
      'https:\\\\evil.example',
      '//evil.example',
    ],
    ...['http://2852039166/', 'http://0xa9fea9fe', 'http://[::ffff:169.254.169.254]/'],
  ])('do not get an address past a rule that denies it: %j', (url) => {
    const hosts = ['evil.example', '169.254.169.254']
    expect(decision({ hosts }, { url })).toBe('deny')
  })

  it.each([
    [{ paths: ['/w/**'] }, { paths: ['~/x'], cwd: '/w' }],
    [{ paths: ['/w/**'] }, { paths: ['/w/..\\..\\x'] }],
    [{ paths: ['/w/**'] }, { paths: ['/w/\0'] }],
    [{ hosts: ['ok.example'] }, { url: 'javascript://ok.example/%0aalert(1)' }],
    [{ hosts: ['ok.example'] }, { url: 'file://ok.example/etc/passwd' }],
    [{ hosts: ['ok.example'] }, { url: 'https://оk.example/' }],
  ] as const)('are not allowed by %j: %j', (rule, detail) => {
    expect(decision({ ...rule, decision: 'allow' }, detail)).toBe('ask')
  })
})
