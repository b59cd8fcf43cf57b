/** `holdfast token`: the tokens in the file that `serve --tokens` reads. */
import { open, readFile, rename, rm } from 'node:fs/promises'
import { SCOPES } from '../core/access.ts'
import { checkQuotas, QUOTAS, type Quotas } from '../core/index.ts'
import {
  ID_RULE,
  isScope,
  isTokenId,
  isTokenName,
  mintToken,
  mintTokenId,
  NAME_RULE,
  parseTokens,
  TOKENS_VERSION,
  tokenSha256,
  type TokenEntry,
} from '../server/tokens.ts'
import { defineCommand, repeated, text, UsageError, type FlagValues } from './command.ts'
import { isoTime, note, say } from './output.ts'

const UNITS_MS = new Map(Object.entries({ s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }))

const TOKEN_FLAGS = {
  tokens: text('FILE', 'the file; new creates it, readable only for you').required(),
  scope: repeated('SCOPE', 'new: watch, talk, answer, edit, manage or admin'),
  expires: text(
    'TIME',
    'new: how long it is valid, like 90s, 45m, 12h or 30d; without it: no limit',
  ),
  principal: text('ID', 'new: whose it is; tokens of one principal share its sessions'),
  group: repeated('NAME', 'new: a group of its principal'),
  agent: repeated('NAME', 'new: an agent that it may use; without it: all'),
  browser: repeated('NAME', 'new: a browser that it may use; without it: all'),
  limit: repeated('QUOTA=N', 'new: how much its principal may use of a quota'),
  id: text('ID', 'new: the id of its holder in logs; without it the principal, or a random one'),
}

const ACTIONS = 'new NAME, list, or revoke NAME'

export const token = defineCommand({
  name: 'token',
  operands: { usage: 'new NAME | list | revoke NAME', takes: ACTIONS, min: 1, max: 2 },
  summary: 'Creates, lists and revokes tokens. The file contains only digests of the tokens.',
  flags: TOKEN_FLAGS,
  async run(values, [action, name]) {
    if (action === 'list' && name === undefined) return list(values.tokens)
    if (action === 'new' && name !== undefined) return create(name, values)
    if (action === 'revoke' && name !== undefined) return revoke(values.tokens, name)
    throw new UsageError(`token takes ${ACTIONS}`)
  },
})

async function create(name: string, values: FlagValues<typeof TOKEN_FLAGS>): Promise<void> {
  const { tokens: file } = values
  if (!isTokenName(name)) throw new UsageError(`the name of a token ${NAME_RULE}`)
  const scopes = [...new Set(values.scope)]
  if (scopes.length === 0 || !scopes.every(isScope)) {
    throw new UsageError(`say what the token may do, with --scope ${SCOPES.join(', --scope ')}`)
  }
  const expiresAt = readExpiry(values.expires)
  const id = values.id ?? mintTokenId()
  if (!isTokenId(id)) throw new UsageError(`--id ${ID_RULE}`)
  const { principal } = values
  if (principal !== null && !isTokenId(principal)) throw new UsageError(`--principal ${ID_RULE}`)
  for (const each of [...values.group, ...values.agent, ...values.browser]) {
    if (!isTokenName(each))
      throw new UsageError(`the name of a group, agent or browser ${NAME_RULE}`)
  }
  const limits = {
    ...(principal === null ? {} : { principal }),
    ...(values.group.length === 0 ? {} : { groups: values.group }),
    ...(values.agent.length === 0 ? {} : { agents: values.agent }),
    ...(values.browser.length === 0 ? {} : { browsers: values.browser }),
    ...(values.limit.length === 0 ? {} : { limits: readLimits(values.limit) }),
  }
  const secret = mintToken()
  await change(file, (entries) => {
    if (entries.some((entry) => entry.name === name)) {
      throw new Error(`there is a token ${name} in ${file}: revoke it first`)
    }
    return [...entries, { name, id, sha256: tokenSha256(secret), scopes, ...limits, expiresAt }]
  })
  // Only the token goes to stdout, so that a program can read it.
  note(`token ${name} (${scopes.join(', ')}) is in ${file}; it is shown only now`)
  console.log(secret)
}

function readLimits(given: readonly string[]): Quotas {
  const limits = given.map((text) => {
    const [, name = text, count = ''] = /^(\w+)=(\d{1,15})$/.exec(text) ?? []
    return [name, count === '' ? Number.NaN : Number(count)] as const
  })
  try {
    return checkQuotas(Object.fromEntries(limits), '--limit')
  } catch {
    // Its message is about a field of the file.
    const names = Object.keys(QUOTAS).join(', ')
    throw new UsageError(`--limit must be like openSessions=10; there are: ${names}`)
  }
}

function readExpiry(text: string | null): number | undefined {
  if (text === null) return undefined
  const [, count, unit = ''] = /^([1-9]\d{0,6})([smhd])$/.exec(text) ?? []
  if (count !== undefined) return Date.now() + Number(count) * (UNITS_MS.get(unit) ?? 0)
  throw new UsageError(`--expires must be like 90s, 45m, 12h or 30d, not ${text}`)
}

async function revoke(file: string, name: string): Promise<void> {
  await change(file, (entries) => {
    const left = entries.filter((entry) => entry.name !== name)
    if (left.length === entries.length) throw new Error(`there is no token ${name} in ${file}`)
    return left
  })
  say(`token ${name} is no longer valid`)
}

async function list(file: string): Promise<void> {
  const entries = await read(file)
  if (entries === null) throw new Error(`there is no file ${file}`)
  const width = Math.max(0, ...entries.map(({ name }) => name.length))
  for (const { name, id, principal, scopes, expiresAt: at } of entries) {
    const verb = at !== undefined && at <= Date.now() ? 'expired' : 'expires'
    const end = at === undefined ? '' : `  ${verb} ${isoTime(at)}`
    const whose = principal === undefined ? '' : `  of ${principal}`
    console.log(`${name.padEnd(width)}  ${id}  ${scopes.join(',')}${whose}${end}`)
  }
}

/** Null if there is no such file. */
async function read(file: string): Promise<readonly TokenEntry[] | null> {
  const text = await readFile(file, 'utf8').catch(({ code }: NodeJS.ErrnoException) => {
    if (code === 'ENOENT') return null
    throw new Error(`cannot read ${file}: ${code}`)
  })
  try {
    return text === null ? null : parseTokens(text)
  } catch (error) {
    throw new Error(`${file} is not a tokens file: ${(error as Error).message}`)
  }
}

/**
 * Replaces the file in one step, so that no reader sees half of it. The new file, which only one
 * process can create, also prevents two commands from overwriting each other's change.
 */
async function change(
  file: string,
  step: (entries: readonly TokenEntry[]) => readonly TokenEntry[],
): Promise<void> {
  const next = `${file}.new`
  const handle = await open(next, 'wx', 0o600).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'EEXIST') throw new Error(`cannot write ${next}: ${error.code}`)
    throw new Error(`another command changes ${file}; if there is none, remove ${next}`)
  })
  try {
    const tokens = step((await read(file)) ?? [])
    await handle.writeFile(`${JSON.stringify({ version: TOKENS_VERSION, tokens }, null, 2)}\n`)
    await handle.sync()
    await rename(next, file)
  } catch (error) {
    await rm(next, { force: true })
    throw error
  } finally {
    await handle.close()
  }
}
